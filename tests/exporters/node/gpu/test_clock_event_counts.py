"""How often a reason came on: never counted twice, and not missed where the driver's counter shows it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.waiting import until

from pyrometer_exporters.node.gpu.clock_event_counts import COUNTER_LAG_SECONDS, ClockEventCounts, Rises
from pyrometer_exporters.node.gpu.clock_events import ClockEvent, Method

HW_THERMAL = 0x40


class One:
    """The counts of hw_thermal, with a counter and a sampler that report what the test sets."""

    def __init__(self) -> None:
        self.rises = Rises()
        self._counts = ClockEventCounts(self.rises)

    def sampled(self, *reads: tuple[float, int]) -> None:
        for now, mask in reads:
            self.rises.take(mask, now)

    def scraped(self, now: float, seconds: float, mask: int = 0, *, shown: bool = True, by: Method = "counter") -> int:
        event = ClockEvent("hw_thermal", seconds, by)
        return self._counts.update([event], {"hw_thermal"} if shown else set(), mask, now)["hw_thermal"]

    def reopened(self) -> None:
        self._counts.reopened()


def test_what_is_on_at_first_sight_was_not_seen_to_come() -> None:
    one = One()
    one.sampled((0, HW_THERMAL), (1, HW_THERMAL))
    assert one.scraped(1, 5.0, HW_THERMAL) == 0
    one.sampled((2, 0), (3, HW_THERMAL), (4, 0x8), (5, HW_THERMAL | 0x8))
    assert one.scraped(5, 6.0, HW_THERMAL) == 2


def test_a_pulse_between_two_samples_counts_once_by_its_counter() -> None:
    one = One()
    one.sampled((100, 0))
    assert one.scraped(100, 5.0) == 0
    one.sampled((115, 0))
    assert one.scraped(115, 5.02) == 1
    assert one.scraped(130, 5.02) == 1
    assert one.scraped(145, 5.04) == 2


def test_growth_that_the_sampler_saw_is_no_event_of_its_own() -> None:
    one = One()
    one.sampled((100, 0))
    one.scraped(100, 5.0)
    one.sampled((101, HW_THERMAL))
    assert one.scraped(115, 19.0, HW_THERMAL) == 1
    assert one.scraped(130, 34.0, HW_THERMAL) == 1  # held throughout: no rise in this window, and none missed
    one.sampled((131, 0))
    assert one.scraped(131 + COUNTER_LAG_SECONDS, 35.0) == 1  # the counter came late


def test_a_bit_that_is_on_now_is_left_to_the_sampler_to_count() -> None:
    one = One()
    one.sampled((100, 0))
    one.scraped(100, 5.0)
    assert one.scraped(115, 5.02, HW_THERMAL) == 0
    one.sampled((115.05, HW_THERMAL))
    assert one.scraped(130, 20.0, HW_THERMAL) == 1


def test_less_than_a_millisecond_is_no_event() -> None:
    one = One()
    one.scraped(100, 5.0)
    assert one.scraped(115, 5.0009) == 0


def test_a_reason_that_the_bitmask_cannot_show_counts_when_its_counter_moves_again() -> None:
    one = One()
    values = (5.0, 6.0, 7.0, 7.0, 8.0, 9.0, 9.0, 9.5)
    counted = [one.scraped(100 + 15 * number, value, shown=False) for number, value in enumerate(values)]
    assert counted == [0, 0, 0, 0, 1, 1, 1, 2]


def test_a_counter_that_is_not_believed_counts_nothing() -> None:
    one = One()
    one.scraped(100, 5.0, by="sampled")
    assert one.scraped(115, 6.0, by="sampled") == 0


def test_while_the_gpu_was_away_nothing_is_counted() -> None:
    one = One()
    one.scraped(100, 5.0)
    one.reopened()
    assert one.scraped(200, 50.0) == 0
    assert one.scraped(215, 50.02) == 1


def test_a_bit_off_before_a_gap_and_on_after_it_came_on_once() -> None:
    one = One()
    one.sampled((100, 0), (160, HW_THERMAL))
    assert one.scraped(160, 30.0, HW_THERMAL) == 1


pulses = st.lists(st.tuples(st.floats(0.002, 20), st.floats(0.0, 30)), max_size=12)  # how long on, how long off before


@given(pulses, st.sampled_from([0.05, 0.3, 2.0]), st.sampled_from([1.0, 5.0, 15.0]))
def test_never_more_events_than_there_were(held: list[tuple[float, float]], step: float, scrape: float) -> None:
    spans, at = [], 0.5
    for on, off in held:
        spans.append((at + off, at + off + on))
        at += off + on
    one, now, due, counted = One(), 0.0, 0.0, 0
    while now < at + 40:
        on_now = any(start <= now < end for start, end in spans)
        one.sampled((now, HW_THERMAL if on_now else 0))
        if now >= due:
            seconds = sum(max(0.0, min(end, now) - start) for start, end in spans)
            new = one.scraped(now, seconds, HW_THERMAL if on_now else 0)
            assert new >= counted
            counted, due = new, due + scrape
        now += step
    assert counted <= len(spans)
    assert counted > 0 or not spans


def test_an_exporter_counts_pulses_that_no_scrape_saw(make_node: Any) -> None:
    node = make_node(count=1, scraped=True)
    (gpu,) = node.collector._registry.gpus
    rises = gpu._throttling.sampled.rises
    until(lambda: rises.mask is not None)
    for events in (1, 2):
        node.gpus[0].throttle("hw_thermal")
        until(lambda: rises.mask & HW_THERMAL)
        node.gpus[0].recover()
        until(lambda: not rises.mask & HW_THERMAL)
        scrape = node.scrape()
        assert scrape.value("pyrometer_gpu_clock_events_total", reason="hw_thermal") == events
        assert scrape.value("pyrometer_gpu_clock_events_total", reason="hw_slowdown") == events
    assert scrape.value("pyrometer_gpu_clock_events_total", reason="power_cap") == 0


@pytest.mark.parametrize("driver", ["535.183.01", "580.76.05", "615.71.05"])
def test_every_reason_with_seconds_has_a_count_that_begins_at_0(make_node: Any, driver: str) -> None:
    scrape = make_node(count=1, driver=driver).scrape()
    seconds = scrape.values("pyrometer_gpu_clock_event_seconds_total")
    assert scrape.values("pyrometer_gpu_clock_events_total") == dict.fromkeys(seconds, 0)
