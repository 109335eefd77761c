"""One scrape: no collector can hide another, and the exporter says how each fared."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrometer_exporters.framework.collector import Collector, CollectorSpec
from pyrometer_exporters.framework.exposition import Renderer
from pyrometer_exporters.framework.gather import Gathered, Gatherer, Validated, Validator
from pyrometer_exporters.framework.metrics import Down, Family, Sample

VALUE = Family("x_value", "gauge", "A value.", ("who",))
COLD = Family("x_cold", "gauge", "Another.", ("who",))


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def wall(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


class Fake:
    def __init__(self, collect: Callable[[float], Iterable[Sample | Down]]) -> None:
        self.collect = collect
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


def spec(name: str, deadline: float = 5.0) -> CollectorSpec:
    def never(_: object) -> Collector:
        raise AssertionError

    return CollectorSpec(name, "help", (VALUE,), never, deadline_seconds=deadline)


Make = Callable[..., Gatherer]


@pytest.fixture
def gatherer() -> Iterator[Make]:
    made = []

    def make(deadline: float = 5.0, **collectors: Callable[[float], Iterable[Sample | Down]]) -> Gatherer:
        pairs = [(spec(name, deadline), Fake(collect)) for name, collect in collectors.items()]
        made.append(Gatherer(pairs, Clock()))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def good(_: float) -> Iterable[Sample | Down]:
    return [VALUE.sample(1, "good")]


def values(gathered: Gathered) -> dict[tuple[str, ...], float]:
    return {(s.family.name, *s.labels): s.value for s in gathered.samples}


def raises(_: float) -> Iterable[Sample | Down]:
    yield VALUE.sample(1, "half")
    raise RuntimeError("driver went away")


def test_a_collector_that_raises_loses_its_samples_and_no_other_does(gatherer: Make) -> None:
    found = values(gatherer(bad=raises, fine=good).gather(5))
    assert found["x_value", "good"] == 1
    assert ("x_value", "half") not in found
    assert found["pyrometer_collector_success", "bad"] == 0
    assert found["pyrometer_collector_success", "fine"] == 1
    assert found["pyrometer_down_reason_info", "bad", "", "runtimeerror"] == 1
    assert ("pyrometer_collector_last_success_timestamp_seconds", "bad") not in found
    assert found["pyrometer_collector_last_success_timestamp_seconds", "fine"] == 1000.0


def test_a_collector_that_exits_does_not_end_the_exporter(gatherer: Make) -> None:
    def leaves(_: float) -> Iterable[Sample | Down]:
        raise SystemExit(1)

    found = values(gatherer(bad=leaves, fine=good).gather(5))
    assert found["pyrometer_collector_success", "bad"] == 0
    assert found["x_value", "good"] == 1


def test_a_collector_that_hangs_costs_its_deadline_only(gatherer: Make, gate: threading.Event) -> None:
    def hangs(_: float) -> Iterable[Sample | Down]:
        gate.wait()
        return []

    gather = gatherer(deadline=0.2, hangs=hangs, fine=good)
    for _ in range(3):
        began = time.monotonic()
        found = values(gather.gather(30))
        assert time.monotonic() - began < 10
        assert found["x_value", "good"] == 1
        assert found["pyrometer_collector_success", "hangs"] == 0
        assert found["pyrometer_down_reason_info", "hangs", "", "deadline"] == 1
        assert found["pyrometer_collector_duration_seconds", "hangs"] == pytest.approx(0.2, abs=0.05)
        assert found["pyrometer_collector_duration_seconds", "fine"] < 0.15
    assert [thread.name for thread in threading.enumerate()].count("worker-hangs") == 1


def test_no_collector_gets_more_time_than_the_scrape(gatherer: Make, gate: threading.Event) -> None:
    untils = []

    def hangs(until: float) -> Iterable[Sample | Down]:
        untils.append(until)
        gate.wait()
        return []

    began = time.monotonic()
    gatherer(hangs=hangs).gather(0.3)
    ended = time.monotonic()
    assert ended - began < 5
    assert began + 0.2 < untils[0] < ended, "told a little less, so that the outcomes of its parts still count"


def test_a_collector_that_hung_is_served_once_it_returns(gatherer: Make, gate: threading.Event) -> None:
    calls = []

    def first_hangs(_: float) -> Iterable[Sample | Down]:
        calls.append(1)
        if len(calls) == 1:
            gate.wait()
        return [VALUE.sample(len(calls), "late")]

    gather = gatherer(deadline=0.1, late=first_hangs)
    assert values(gather.gather(5))["pyrometer_collector_success", "late"] == 0
    gate.set()
    end = time.monotonic() + 30
    while (found := values(gather.gather(5)))["pyrometer_collector_success", "late"] == 0:
        assert time.monotonic() < end
    assert found["x_value", "late"] == 2


def test_the_time_of_the_last_success_stays_while_a_collector_fails(gatherer: Make) -> None:
    fail: list[int] = []

    def sometimes(_: float) -> Iterable[Sample | Down]:
        if fail:
            raise OSError(5, "Input/output error")
        return []

    gather = gatherer(some=sometimes)
    gather.gather(5)
    fail.append(1)
    found = values(gather.gather(5))
    assert found["pyrometer_collector_last_success_timestamp_seconds", "some"] == 1000.0
    assert found["pyrometer_down_reason_info", "some", "", "eio"] == 1


def test_a_part_is_logged_once_when_it_goes_down_and_once_when_it_is_back(
    gatherer: Make, caplog: pytest.LogCaptureFixture
) -> None:
    down = [Down("gpu 3", "deadline", "no answer in 2.0 s")]

    def collect(_: float) -> Iterable[Sample | Down]:
        return [VALUE.sample(1, "other"), *down]

    gather = gatherer(gpu=collect)
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            found = values(gather.gather(5))
            assert found["pyrometer_down_reason_info", "gpu", "gpu 3", "deadline"] == 1
            assert found["x_value", "other"] == 1
            assert found["pyrometer_collector_success", "gpu"] == 1
        down.clear()
        found = values(gather.gather(5))
        gather.gather(5)
    assert not [key for key in found if key[0] == "pyrometer_down_reason_info"]
    assert [record.getMessage() for record in caplog.records] == [
        "not available: collector gpu gpu 3: deadline: no answer in 2.0 s", "available again: collector gpu gpu 3"
    ]  # fmt: skip


class Stranger:
    """Stand for an object that is no sample."""


GARBAGE: list[object] = [
    None, 5, "text", Stranger, (1, 2), (VALUE, ("a",), 1), Sample([1], ("a",), 1),  # type: ignore[arg-type]
    Sample(VALUE, ("a", "b"), 1), Sample(VALUE, (), 1), Sample(VALUE, (5,), 1),  # type: ignore[arg-type]
    Sample(VALUE, ("a",), None), Sample(VALUE, ("a",), "1"), Sample(VALUE, ("a",), 10**400),  # type: ignore[arg-type]
    Sample(VALUE, ("a",), [1]), Sample(VALUE, ("a",), 1j), Sample(None, ("a",), 1),  # type: ignore[arg-type]
    Down("x", 5), Down(None, "x"),  # type: ignore[arg-type]
]  # fmt: skip


@pytest.mark.parametrize("item", GARBAGE, ids=repr)
def test_garbage_among_samples_is_dropped_and_reported(gatherer: Make, item: Sample | Down) -> None:
    def lies(_: float) -> Iterable[Sample | Down]:
        return [VALUE.sample(1, "before"), item, VALUE.sample(1, "after")]

    gathered = gatherer(lies=lies, fine=good).gather(5)
    found = values(gathered)
    assert {key[1] for key in found if key[0] == "x_value"} == {"before", "after", "good"}
    assert found["pyrometer_down_reason_info", "lies", "", "bad_sample"] == 1
    assert b"good" in Renderer().text(gathered.samples)


def test_series_that_come_and_go(gatherer: Make) -> None:
    names = [["a", "b"], ["b"], [], ["a", "b", "c"], ["c", "a"]]
    gather = gatherer(some=lambda _: [VALUE.sample(len(who), who) for who in names[0]])
    while names:
        found = values(gather.gather(5))
        assert [key[1] for key in found if key[0] == "x_value"] == names.pop(0)


@pytest.mark.parametrize("item", [item for item in GARBAGE if isinstance(item, Sample)], ids=repr)
def test_garbage_where_a_good_sample_was_is_dropped_until_it_is_good_again(gatherer: Make, item: Sample) -> None:
    now = [VALUE.sample(1, "a")]
    gather = gatherer(sometimes=lambda _: [VALUE.sample(1, "before"), now[0], VALUE.sample(1, "after")])
    for value, kept in ((now[0], True), (item, False), (item, False), (now[0], True)):
        now[0] = value
        gathered = gather.gather(5)
        found = values(gathered)
        told = ("pyrometer_down_reason_info", "sometimes", "", "bad_sample") in found
        assert (("x_value", "a") in found, told) == (kept, not kept)
        assert {("x_value", "before"), ("x_value", "after")} <= found.keys()
        assert b"before" in Renderer().text(gathered.samples)


def test_values_that_cannot_be_compared_cost_only_themselves(gatherer: Make) -> None:
    class Array:
        def __eq__(self, other: object) -> bool:
            raise ValueError(other)

        __hash__ = None  # type: ignore[assignment]

    given: list[float] = [1.0]
    gather = gatherer(odd=lambda _: [VALUE.sample(given[0], "a"), VALUE.sample(2, "b")])
    gather.gather(5)
    given[0] = Array()  # type: ignore[call-overload]
    for _ in range(2):
        found = values(gather.gather(5))
        assert ("x_value", "a") not in found
        assert found["x_value", "b"] == 2
        assert found["pyrometer_collector_success", "odd"] == 1
        assert found["pyrometer_down_reason_info", "odd", "", "bad_sample"] == 1


@pytest.mark.parametrize("given", [None, 5, [None], "abc"], ids=repr)
def test_something_that_is_no_list_of_samples(gatherer: Make, given: Iterable[Sample | Down]) -> None:
    found = values(gatherer(lies=lambda _: given, fine=good).gather(5))
    assert found["x_value", "good"] == 1
    assert [key for key in found if key[:2] == ("pyrometer_down_reason_info", "lies")]


def test_nan_and_infinity_are_values(gatherer: Make) -> None:
    gathered = gatherer(odd=lambda _: [VALUE.sample(float("nan"), "a"), VALUE.sample(float("inf"), "b")]).gather(5)
    text = Renderer().text(gathered.samples).decode()
    assert 'x_value{who="a"} NaN\nx_value{who="b"} +Inf\n' in text


def test_closing_closes_all_even_if_one_cannot(caplog: pytest.LogCaptureFixture) -> None:
    class Bad(Fake):
        def close(self) -> None:
            raise OSError

    bad, fine = Bad(good), Fake(good)
    Gatherer([(spec("bad"), bad), (spec("fine"), fine)], Clock()).close()
    assert fine.closed == 1
    assert "did not close" in caplog.text


GOOD = st.builds(
    lambda family, value, who: family.sample(value, who),
    st.sampled_from([VALUE, COLD]),
    st.one_of(st.floats(), st.integers(-(2**70), 2**70), st.booleans()),
    st.text(max_size=3),
)
DOWNS = st.builds(Down, st.sampled_from("pq"), st.just("gone"))
ITEMS = st.lists(st.one_of(GOOD, DOWNS, st.sampled_from(GARBAGE)), max_size=12)


def validated(items: list[object], left_out: tuple[str, ...] = ()) -> Validated:
    return Validator(left_out).validate(items)


@given(ITEMS)
def test_valid_samples_are_served_in_order_and_the_others_are_one_down(items: list[object]) -> None:
    bad = [item for item in items if any(item is one for one in GARBAGE)]
    good = [item for item in items if not any(item is one for one in GARBAGE)]
    columns, downs = validated(items)
    assert [*map(repr, columns.samples())] == [repr(item) for item in good if isinstance(item, Sample)]
    expected = [item for item in good if isinstance(item, Down)]
    assert downs[: len(expected)] == expected
    assert [down.reason for down in downs[len(expected) :]] == ["bad_sample"] * bool(bad)
    assert all(down.detail.startswith(f"samples that can't be served: {len(bad)},") for down in downs[len(expected) :])


@given(ITEMS)
def test_valid_samples_can_be_written(items: list[object]) -> None:
    Renderer().page(validated(items).columns)


@given(st.lists(ITEMS, max_size=5), st.sampled_from([(), (VALUE.name,)]))
def test_validation_does_not_depend_on_earlier_scrapes(scrapes: list[list[object]], left_out: tuple[str, ...]) -> None:
    validator = Validator(left_out)
    for items in scrapes:
        assert repr(validator.validate(items)) == repr(validated(items, left_out))


def test_the_family_of_the_first_bad_sample_is_named() -> None:
    (down,) = validated([VALUE.sample(1, "a"), Sample(COLD, ("a", "b"), 1)]).downs
    assert down.detail == "samples that can't be served: 1, the first of x_cold"


def test_another_librarys_number_is_served_as_a_float() -> None:
    (sample,) = validated([Sample(VALUE, ("a",), Fraction(1, 4))]).columns.samples()  # type: ignore[arg-type]
    assert (type(sample.value), sample.value) == (float, 0.25)


@given(ITEMS)
def test_only_families_that_are_left_out_are_dropped(items: list[object]) -> None:
    served, downs = validated(items, (VALUE.name,))
    everything = validated(items)
    kept = [sample for sample in everything.columns.samples() if sample.family is not VALUE]
    assert [*map(repr, served.samples())] == [*map(repr, kept)]
    assert repr(downs) == repr(everything.downs)
