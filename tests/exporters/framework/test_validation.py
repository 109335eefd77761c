"""Every sample that can be written is served; the others are counted in one Down and cost nobody else anything."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from pyrometer_exporters.framework.exposition import Renderer
from pyrometer_exporters.framework.gather import Validated, Validator
from pyrometer_exporters.framework.metrics import Down, Family, Sample

HEAT = Family("x_heat", "gauge", "One.", ("who",))
COLD = Family("x_cold", "gauge", "Another.", ("who",))

GOOD = st.builds(
    lambda family, value, who: family.sample(value, who),
    st.sampled_from([HEAT, COLD]),
    st.one_of(st.floats(), st.integers(-(2**70), 2**70), st.booleans()),
    st.text(max_size=3),
)
BAD: list[object] = [
    None, 5, "text", (HEAT, ("a",), 1), Sample(HEAT, ("a", "b"), 1), Sample(HEAT, (), 1), Sample(HEAT, (5,), 1),  # type: ignore[arg-type]
    Sample(HEAT, ("a",), None), Sample(HEAT, ("a",), "1"), Sample(HEAT, ("a",), 10**400), Sample(None, ("a",), 1),  # type: ignore[arg-type]
    Sample([1], ("a",), 1), Sample(HEAT, ("a",), 1j), Down("x", 5), Down(None, "x"),  # type: ignore[arg-type]
]  # fmt: skip
DOWNS = st.builds(Down, st.sampled_from("pq"), st.just("gone"))
ITEMS = st.lists(st.one_of(GOOD, DOWNS, st.sampled_from(BAD)), max_size=12)


def validated(items: list[object], left_out: tuple[str, ...] = ()) -> Validated:
    return Validator(left_out).validate(items)


@given(ITEMS)
def test_what_can_be_written_is_served_in_order_and_the_rest_is_one_down(items: list[object]) -> None:
    bad = [item for item in items if any(item is one for one in BAD)]
    good = [item for item in items if not any(item is one for one in BAD)]
    columns, downs = validated(items)
    assert [*map(repr, columns.samples())] == [repr(item) for item in good if isinstance(item, Sample)]
    expected = [item for item in good if isinstance(item, Down)]
    assert downs[: len(expected)] == expected
    assert [down.reason for down in downs[len(expected) :]] == ["bad_sample"] * bool(bad)
    assert all(down.detail.startswith(f"samples that can't be served: {len(bad)},") for down in downs[len(expected) :])


@given(ITEMS)
def test_what_passes_can_be_written(items: list[object]) -> None:
    Renderer().page(validated(items).columns)


@given(st.lists(ITEMS, max_size=5), st.sampled_from([(), (HEAT.name,)]))
def test_scrapes_before_change_nothing(scrapes: list[list[object]], left_out: tuple[str, ...]) -> None:
    validator = Validator(left_out)
    for items in scrapes:
        assert repr(validator.validate(items)) == repr(validated(items, left_out))


def test_the_family_of_the_first_bad_sample_is_named() -> None:
    (down,) = validated([HEAT.sample(1, "a"), Sample(COLD, ("a", "b"), 1)]).downs
    assert down.detail == "samples that can't be served: 1, the first of x_cold"


def test_another_librarys_number_is_served_as_a_float() -> None:
    (sample,) = validated([Sample(HEAT, ("a",), Fraction(1, 4))]).columns.samples()  # type: ignore[arg-type]
    assert (type(sample.value), sample.value) == (float, 0.25)


@given(ITEMS)
def test_what_is_left_out_is_dropped_and_nothing_else(items: list[object]) -> None:
    served, downs = validated(items, (HEAT.name,))
    everything = validated(items)
    kept = [sample for sample in everything.columns.samples() if sample.family is not HEAT]
    assert [*map(repr, served.samples())] == [*map(repr, kept)]
    assert repr(downs) == repr(everything.downs)
