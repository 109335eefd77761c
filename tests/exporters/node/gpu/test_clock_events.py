"""Which counter is which on which driver, and what becomes of counters that lie."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrometer_exporters.node.gpu.clock_events import (
    COUNTER_SLACK_SECONDS,
    KNOWN_BITS,
    REASONS,
    ClockEvent,
    ClockEvents,
    Method,
    Reason,
    counted_slowdowns,
    counter_fields,
    sampled_bits,
    sampled_reasons,
    seconds_by_reason,
    version_numbers,
)

THERMAL = ("sw_thermal", "hw_thermal", "hw_power_brake")


@pytest.mark.parametrize(
    ("driver", "ids"),
    [
        ("450.80.02", None),
        ("535.183.01", None),
        ("550.54.15", None),
        ("570.86.15", None),
        ("570.124.06", None),
        ("574.99", None),
        ("575", (251, 252, 253)),
        ("575.51.03", (251, 252, 253)),
        ("576.02", (251, 252, 253)),
        ("580.65.06", (251, 252, 253)),
        ("580.66", None),
        ("580.76.05", None),
        ("580.81", None),
        ("580.82.07", (269, 270, 271)),
        ("580.173.02", (269, 270, 271)),
        ("590.48.01", (269, 270, 271)),
        ("595.45.04", (269, 270, 271)),
        ("610.43", (269, 270, 271)),
        ("615.71.05", (269, 270, 271)),
        ("", None),
        ("590.48.beta", None),
    ],
)
def test_thermal_counters_have_the_ids_of_their_driver(driver: str, ids: tuple[int, ...] | None) -> None:
    fields = counter_fields(driver)
    assert tuple(fields[name] for name in THERMAL if name in fields) == (ids or ())
    assert {name: fields[name] for name in fields if name not in THERMAL} == {
        "power_cap": 74,
        "sync_boost": 76,
        "board_limit": 77,
        "reliability": 79,
    }


def test_reasons_have_one_bit_each_and_cover_the_known_ones() -> None:
    assert sorted(reason.bit for reason in REASONS) == [1 << number for number in range(11)]
    assert sum(reason.bit for reason in REASONS) == KNOWN_BITS


def test_the_newest_bits_are_sampled_only_where_the_driver_has_them() -> None:
    assert sampled_reasons("615.71.05") - sampled_reasons("610.43") == {"board_limit", "reliability"}
    assert len(sampled_reasons("")) == 9


@pytest.mark.parametrize(
    ("text", "numbers"), [("580.65.06", (580, 65, 6)), ("590", (590,)), ("", ()), ("a.b", ()), ("580.", ())]
)
def test_versions(text: str, numbers: tuple[int, ...]) -> None:
    assert version_numbers(text) == numbers


def test_seconds_of_a_mask_count_for_each_of_its_bits() -> None:
    seconds = seconds_by_reason({0x48: 2.0, 0x40: 0.5, 0: 9.0})
    assert (seconds["hw_thermal"], seconds["hw_slowdown"], seconds["gpu_idle"]) == (2.5, 2.0, 0)


def _one(events: ClockEvents, nanoseconds: float | None, sampled: float, now: float) -> tuple[float, str]:
    counters = {} if nanoseconds is None else {"hw_thermal": nanoseconds}
    (event,) = events.update(counters, {"hw_thermal": sampled}, now)
    return event.seconds, event.method


def test_a_counter_is_served_as_the_driver_has_it() -> None:
    events = ClockEvents()
    assert _one(events, 5e9, 0.0, 100) == (5.0, "counter")
    assert _one(events, 7e9, 1.0, 115) == (7.0, "counter")


def test_a_counter_that_goes_backwards_is_replaced_by_the_sampler_from_there_on() -> None:
    events = ClockEvents()
    assert _one(events, 5e9, 1.0, 100) == (5.0, "counter")
    assert _one(events, 4e9, 1.5, 115) == (5.5, "sampled")
    assert _one(events, 9e9, 2.5, 130) == (6.5, "sampled")


def test_a_counter_that_outruns_time_is_not_believed() -> None:
    events = ClockEvents()
    _one(events, 0, 0.0, 100)
    assert _one(events, 60e9, 0.25, 115) == (0.25, "sampled")


def test_a_counter_that_stops_answering_is_carried_on_by_the_sampler() -> None:
    events = ClockEvents()
    _one(events, 5e9, 0.0, 100)
    assert _one(events, None, 2.0, 115) == (7.0, "sampled")


def test_a_counter_may_begin_again_after_the_gpu_was_away() -> None:
    events = ClockEvents()
    _one(events, 5e9, 0.0, 100)
    events.reopened()
    assert _one(events, 1e9, 0.0, 115) == (1.0, "counter")


def test_without_counter_and_sampler_there_is_no_value() -> None:
    assert ClockEvents().update({}, {}, 100) == []


@pytest.mark.parametrize("garbage", [-1.0, float("nan")])
def test_an_impossible_first_value_is_not_believed(garbage: float) -> None:
    assert _one(ClockEvents(), garbage, 0.5, 100) == (0.5, "sampled")


steps = st.lists(
    st.tuples(
        st.one_of(st.none(), st.floats(-1e12, 1e12, allow_nan=False)),  # the counter, honest or not
        st.floats(0, 15),  # what the sampler saw meanwhile
        st.floats(0.01, 60),  # time since the read before
    ),
    max_size=30,
)


@given(steps)
def test_what_is_served_never_falls_and_never_outruns_time(reads: list[tuple[float | None, float, float]]) -> None:
    events, sampled, now, last = ClockEvents(), 0.0, 0.0, None
    for nanoseconds, grown, elapsed in reads:
        now += elapsed
        sampled += min(grown, elapsed)
        seconds, _method = _one(events, nanoseconds, sampled, now)
        if last is not None:
            assert last - 1e-6 <= seconds <= last + elapsed + COUNTER_SLACK_SECONDS + 1e-6
        last = seconds


def test_the_reasons_have_dcgm_exporters_names() -> None:
    assert [reason.name for reason in REASONS] == [
        "gpu_idle", "clocks_setting", "power_cap", "hw_slowdown", "sync_boost", "sw_thermal", "hw_thermal",
        "hw_power_brake", "display_clocks", "board_limit", "reliability",
    ]  # fmt: skip


@pytest.mark.parametrize(("ahead", "method"), [(20e9, "counter"), (20.5e9, "sampled")])
def test_a_counter_may_be_ten_seconds_ahead_of_time(ahead: float, method: str) -> None:
    events = ClockEvents()
    assert _one(events, 0, 0.0, 100) == (0.0, "counter")
    assert _one(events, ahead, 0.0, 110)[1] == method


@pytest.mark.parametrize(("first", "method"), [(1e18, "counter"), (1e18 + 5e8, "sampled"), (2.0**64 - 1, "sampled")])
def test_no_counter_has_run_for_more_than_thirty_years(first: float, method: str) -> None:
    assert _one(ClockEvents(), first, 0.0, 100)[1] == method


def test_a_counter_that_stops_while_nothing_happens_is_the_samplers_from_then_on() -> None:
    events = ClockEvents()
    _one(events, 5e9, 2.0, 100)
    assert _one(events, None, 2.0, 115) == (5.0, "sampled")


def test_what_did_not_grow_is_the_same_event() -> None:
    events = ClockEvents()
    first = events.update({}, {"hw_thermal": 2.0}, 100)
    assert events.update({}, {"hw_thermal": 2.0}, 115)[0] is first[0]


def events(method: Method) -> list[ClockEvent]:
    """Return an event of each reason; the first has one second, the next two, then four."""
    return [ClockEvent(reason.name, float(1 << index), method) for index, reason in enumerate(REASONS)]


def test_the_bits_to_sample_are_those_of_reasons_without_a_counter_that_come_and_go() -> None:
    come_and_go = sum(reason.bit for reason in REASONS if reason.name not in ("gpu_idle", "clocks_setting"))
    assert sampled_bits(events("sampled")) == come_and_go
    assert sampled_bits(events("counter")) == 0
    assert sampled_bits([ClockEvent("hw_thermal", 0.0, "sampled"), ClockEvent("power_cap", 9.0, "counter")]) == 0x40


@pytest.mark.parametrize("reason", REASONS, ids=lambda reason: reason.name)
def test_of_the_counted_reasons_only_those_that_slow_a_gpu_down_are_slowdowns(reason: Reason) -> None:
    slows = reason.name in ("sw_thermal", "hw_thermal", "hw_power_brake", "reliability")
    assert counted_slowdowns([ClockEvent(reason.name, 3.0, "counter")]) == (3.0 if slows else 0.0)
    assert counted_slowdowns([ClockEvent(reason.name, 3.0, "sampled")]) == 0.0
