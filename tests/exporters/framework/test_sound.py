"""What of a collector's samples can be written, from scrape to scrape."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pyrometer_exporters.framework.metrics import Batch, Down, Family, Sample, single
from pyrometer_exporters.framework.sound import Found, Sound

HEAT = Family("x_heat", "gauge", "One.", ("who",))
COLD = Family("x_cold", "gauge", "Another.", ("who",))
BAD = Sample(HEAT, ("a", "b"), 1)
BATCH = Batch(COLD, (COLD.sample(3, "batched"),))

samples = st.builds(
    lambda family, value, who: family.sample(value, who),
    st.sampled_from([HEAT, COLD]),
    st.sampled_from([0.0, 1, 2.5, float("nan")]),
    st.sampled_from("abc"),
)
items = st.one_of(samples, st.just(BAD), st.just(BATCH), st.builds(Down, st.sampled_from("pq"), st.just("gone")))
scrapes = st.lists(st.lists(items, max_size=6), max_size=8)


def told(found: Found) -> tuple[list[str], list[Down]]:
    """By text, as NaN is unequal to itself."""
    return [repr(sample) for sample in single(found.items)], found.downs


def batches(found: Found) -> dict[Family, Batch]:
    return {item.family: item for item in found.items if isinstance(item, Batch)}


@given(scrapes)
def test_what_was_given_before_changes_nothing_of_what_is_served(history: list[list[Sample | Batch | Down]]) -> None:
    sound = Sound()
    for given_now in history:
        assert told(sound.found([*given_now])) == told(Sound().found([*given_now]))


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from([0.0, 1.0])), max_size=12))
def test_values_that_change_in_their_places_are_served_as_they_are_now(changes: list[tuple[int, float]]) -> None:
    sound, now = Sound(), [HEAT.sample(0, "a"), COLD.sample(0, "a"), HEAT.sample(0, "b")]
    for place, value in changes:
        now = [*now]
        now[place] = now[place]._replace(value=value)
        assert {*single(sound.found(now).items)} == {*now}


def test_only_the_family_of_what_changed_is_another_batch() -> None:
    sound = Sound()
    first = batches(sound.found([HEAT.sample(1, "a"), COLD.sample(5, "a")]))
    second = batches(sound.found([HEAT.sample(2, "a"), COLD.sample(5, "a")]))
    assert second[COLD] is first[COLD]
    assert [sample.value for sample in second[HEAT].samples] == [2]


def test_a_list_that_is_given_again_after_it_was_changed_is_looked_at_again() -> None:
    sound = Sound()
    given_again: list[Sample | Batch | Down] = [HEAT.sample(1, "a")]
    sound.found(given_again)
    given_again[0] = HEAT.sample(2, "a")
    assert [sample.value for sample in single(sound.found(given_again).items)] == [2]


def test_samples_that_change_places_are_served_in_their_new_order() -> None:
    sound = Sound()
    sound.found([HEAT.sample(1, "a"), COLD.sample(5, "a")])
    assert [item.family for item in sound.found([COLD.sample(5, "a"), HEAT.sample(1, "a")]).items] == [COLD, HEAT]
