"""The sampler's counts, and that nothing stops it."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.waiting import until

from pyrometer_exporters.framework.outcome import PartError
from pyrometer_exporters.node.gpu.driver import Link
from pyrometer_exporters.node.gpu.sampler import (
    BUSY_SECONDS,
    DEFAULT_FREQUENCY,
    MAX_GAP_SECONDS,
    REST_FREQUENCY,
    REST_SECONDS,
    SampledGpu,
    Sampler,
    Stretches,
)


def _link_to_nothing() -> contextlib.AbstractContextManager[Link]:
    return contextlib.nullcontext(Link(0, "590.48.01", 1))


@pytest.fixture
def sampler() -> Iterator[Sampler]:
    sampler = Sampler(lambda: contextlib.nullcontext(Link(0, "590.48.01", 3)))
    yield sampler
    sampler.close()


def test_time_between_two_reads_counts_for_the_bits_seen_at_its_end() -> None:
    watched = SampledGpu()
    for now, mask in ((1.0, 0), (1.05, 0x40), (1.1, 0x40), (1.15, 0)):
        watched.take(mask, now)
    assert watched.by_mask() == pytest.approx({0x40: 0.1, 0: 0.05})


def test_a_gap_counts_for_nothing() -> None:
    watched = SampledGpu()
    watched.take(0x40, 1.0)
    watched.take(0x40, 1.01 + MAX_GAP_SECONDS)
    assert watched.by_mask() == {}


ALL_ONES = 0xFFFFFFFFFFFFFFFF
POWER_MILLIWATTS = 686_104  # the answer to another call, as others have seen it; it has the bits of two reasons


@pytest.mark.parametrize(
    "break_it",
    [lambda w: w.missed(0), lambda w: w.take(ALL_ONES, 1.02), lambda w: w.take(POWER_MILLIWATTS, 1.02)],
)
def test_a_failed_read_is_not_bridged(break_it: Callable[[SampledGpu], None]) -> None:
    watched = SampledGpu()
    watched.take(0x40, 1.0)
    break_it(watched)
    watched.take(0x40, 1.05)
    assert watched.by_mask() == {}
    assert set(watched.rises.counts.values()) == {0}


@given(st.lists(st.tuples(st.floats(-1, 3), st.integers(0, ALL_ONES)), max_size=50))
def test_seconds_only_grow_and_never_sum_to_more_than_elapsed(reads: list[tuple[float, int]]) -> None:
    watched, now, total, elapsed = SampledGpu(), 100.0, 0.0, 0.0
    for step, mask in reads:
        now += step
        elapsed += max(0.0, step)
        watched.take(mask, now)
        grown = sum(watched.by_mask().values())
        assert total <= grown <= elapsed + 1e-6
        total = grown
    assert len(watched.by_mask()) <= 2048


@pytest.mark.parametrize("length", [0.03, 0.1, 0.2, 0.3])
@pytest.mark.parametrize("period", [0.05, 0.1, 0.131, 0.25, 1.0, 3.0])
def test_what_comes_and_goes_is_counted_right_in_step_or_not(period: float, length: float) -> None:
    """Ten minutes of pulses: a fixed interval would count those of 70 ms every 250 ms as 50 or 100."""
    if length < period:
        true = 600.0 * length / period
        assert _counted(lambda now: now % period < length, 600.0)[0] == pytest.approx(true, rel=0.08)


@pytest.mark.parametrize("length", [0.03, 0.1, 0.2, 0.3])
def test_pulses_after_a_rest_are_each_off_by_two_stretches_at_most_and_together_by_nothing(length: float) -> None:
    """Two thousand pulses half a minute apart: the reads are rare when each begins, and more frequent when it ends."""
    seconds, pulses = _counted(lambda now: now % 30.0 < length, 60_000.0)
    assert seconds == pytest.approx(2000 * length, rel=0.1 if length < 0.1 else 0.03)
    assert max(abs(counted - length) for counted in pulses) <= 2 / REST_FREQUENCY


def test_reads_are_rare_at_rest_and_while_a_reason_lasts_that_the_driver_counts() -> None:
    watched = SampledGpu()
    watched.urgent = 0x8
    for now, mask in ((1.0, 0x1), (1.2, 0x4), (1.4, 0x44)):
        watched.take(mask, now)
        assert watched.busy_until == 0
    watched.take(0x8, 1.6)
    assert watched.busy_until == 1.6 + BUSY_SECONDS


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 0.999), st.floats(0, 1))))
def test_each_stretch_is_read_once_and_follows_the_one_before(turns: list[tuple[bool, float, float]]) -> None:
    moments = iter([moment for _, moment, _ in turns])
    stretches = Stretches(0.05, 0.2, lambda: next(moments))
    now = 100.0
    for busy, _, late in turns:
        before = max(stretches.ends, now)
        due = stretches.begin(now, busy=busy)
        assert before <= due <= stretches.ends
        assert stretches.ends - before == pytest.approx(0.05 if busy else 0.2)
        now = due + late


def _counted(is_on: Callable[[float], bool], end: float) -> tuple[float, list[float]]:
    """Return the seconds that a sampler counts of a reason on a virtual clock, and what each 30 s add."""
    stretches = Stretches(1 / DEFAULT_FREQUENCY, 1 / REST_FREQUENCY, random.Random(7).random)  # noqa: S311  repeatable
    watched, now, added, before = SampledGpu(), 0.0, [], 0.0
    # Two threads take turns: when one has read, the other waits for the stretch after that already.
    waiting = [(0.0, 0.0)]
    while now < end:
        waiting.append((stretches.begin(now, busy=watched.busy_until > now), stretches.ends))
        due, ends = waiting.pop(0)
        if due // 30 > now // 30:
            seconds = watched.by_mask().get(0x8, 0.0)
            added.append(seconds - before)
            before = seconds
        now = max(now, due)
        watched.take(0x8 if is_on(now) else 0, now, ends)
    return watched.by_mask()[0x8], added


def test_a_pulse_of_200_ms_between_two_scrapes_is_visible_afterwards_by_either_way(make_node: Any) -> None:
    node = make_node(count=1, scraped=True)
    for pulses in range(1, 6):  # a machine under load may keep the sampler from its reads: not five times in a row
        node.gpus[0].pulse("hw_thermal", seconds=0.2, delay=0.1)
        _until_over(time.monotonic() + 0.3)
        scrape = node.scrape()
        counted = scrape.value("pyrometer_gpu_clock_event_seconds_total", reason="hw_thermal")
        sampled = scrape.value("pyrometer_gpu_clock_event_seconds_total", reason="hw_slowdown")
        assert counted == pytest.approx(0.2 * pulses)
        assert scrape.value("DCGM_FI_DEV_CLOCKS_EVENT_REASONS") == 1  # the gauge never saw it
        if sampled:
            break
    assert 0.04 <= sampled <= 0.5 * pulses


def test_a_slowdown_that_only_the_driver_counted_makes_the_sampler_look_often(make_node: Any) -> None:
    node = make_node(count=1, driver="595.45.04")
    for _ in range(2):
        node.scrape()
    (gpu,) = node.collector._registry.gpus
    sampled = gpu._throttling.sampled
    assert sampled.urgent == 0x108, "hw_slowdown and display_clocks, which no driver counts"
    assert sampled.busy_until == 0
    node.gpus[0].pulse("sw_thermal", seconds=0.01)
    _until_over(time.monotonic() + 0.05)
    node.scrape()
    assert sampled.busy_until > time.monotonic()


def test_a_power_cap_that_the_driver_counts_leaves_the_sampler_at_rest(make_node: Any) -> None:
    node = make_node(count=1, driver="595.45.04", scraped=True)
    node.gpus[0].pulse("power_cap", seconds=0.05)
    _until_over(time.monotonic() + 0.1)
    scrape = node.scrape()
    assert scrape.value("pyrometer_gpu_clock_event_seconds_total", reason="power_cap") == pytest.approx(0.05)
    (gpu,) = node.collector._registry.gpus
    assert gpu._throttling.sampled.busy_until == 0


@pytest.mark.parametrize("hung", [{1}, {0, 2}])
def test_gpus_that_hang_do_not_stop_the_others(sampler: Sampler, hung: set[int]) -> None:
    node = _Fake(3)
    for watched in node.watched:
        sampler.watch(watched)
    until(lambda: all(node.reads))
    for index in hung:
        node.hangs[index] = True
    until(lambda: all(node.stuck[index] for index in hung))
    before = list(node.reads)
    until(lambda: all(node.reads[index] >= before[index] + 8 for index in {0, 1, 2} - hung))
    until(lambda: _threads() == 2 + len(hung))
    until(lambda: all(node.watched[index].hangs for index in hung))
    assert [node.reads[index] for index in hung] == [before[index] for index in hung]
    node.hangs = [False] * 3
    until(lambda: all(node.reads[index] > before[index] for index in hung))
    until(lambda: _threads() == 2)
    assert not any(watched.hangs for watched in node.watched)


def test_the_neighbours_of_a_gpu_that_hangs_miss_no_time(sampler: Sampler) -> None:
    node = _Fake(2)
    for watched in node.watched:
        sampler.watch(watched)
    for _ in range(5):  # a machine under load may keep both threads from their turns: not five times in a row
        until(lambda: all(node.reads))
        start, seconds = time.monotonic(), sum(node.watched[1].by_mask().values())
        node.hangs[0] = True
        reads = node.reads[1]
        until(lambda reads=reads: node.stuck[0] and node.reads[1] >= reads + 12)  # type: ignore[misc]
        covered, passed = sum(node.watched[1].by_mask().values()) - seconds, time.monotonic() - start
        node.hangs[0] = node.stuck[0] = False
        if covered > passed - 0.1:
            return
    pytest.fail(f"{covered:.2f} s of {passed:.2f} s")


def test_a_handle_of_an_earlier_connection_is_not_used(sampler: Sampler) -> None:
    node = _Fake(2)
    node.watched[0].generation = -1
    for watched in node.watched:
        sampler.watch(watched)
    until(lambda: node.reads[1] > 3)
    assert node.reads[0] == 0


def test_without_a_connection_nothing_is_read_and_the_gap_counts_for_nothing() -> None:
    node, refused = _Fake(1), threading.Semaphore(0)
    connected = threading.Event()
    sampler = Sampler(lambda: _link(connected, refused))
    try:
        node.watched[0].take(0x40, time.monotonic())
        sampler.watch(node.watched[0])
        assert refused.acquire(timeout=5)
        assert refused.acquire(timeout=5)
        start = time.monotonic()
        connected.set()
        until(lambda: node.reads[0] > 1)
        assert sum(node.watched[0].by_mask().values()) <= time.monotonic() - start
    finally:
        sampler.close()


def test_a_slow_gpu_is_read_less_often_and_the_others_keep_their_cadence(sampler: Sampler) -> None:
    node = _Fake(2)
    node.delay[0] = 0.08
    for watched in node.watched:
        sampler.watch(watched)
    until(lambda: node.reads[1] >= 12)
    assert node.reads[0] <= node.reads[1] / 4


def test_a_gpu_that_fails_rests_and_returns(sampler: Sampler) -> None:
    node = _Fake(1)
    node.error[0] = PartError("gpu_is_lost")
    sampler.watch(node.watched[0])
    until(lambda: node.reads[0] == 2)
    assert node.read_at[0][1] - node.read_at[0][0] >= REST_SECONDS
    node.error[0] = None
    until(lambda: node.reads[0] > 5)


def test_an_unforeseen_error_does_not_end_the_sampler(sampler: Sampler, caplog: pytest.LogCaptureFixture) -> None:
    node = _Fake(2)
    node.error[0] = ValueError("unforeseen")
    for watched in node.watched:
        sampler.watch(watched)
    until(lambda: node.reads[1] > 3)
    assert "unforeseen" in caplog.text


def test_no_thread_is_left_to_read_anything_after_the_end(sampler: Sampler) -> None:
    node = _Fake(1)
    sampler.watch(node.watched[0])
    until(lambda: node.reads[0] > 0)
    sampler.close()
    until(lambda: _threads() == 0)


class _Fake:
    """GPUs as the sampler sees them."""

    def __init__(self, count: int) -> None:
        self.watched = [SampledGpu() for _ in range(count)]
        self.reads = [0] * count
        self.read_at: list[list[float]] = [[] for _ in range(count)]
        self.hangs = [False] * count
        self.stuck = [False] * count
        self.delay = [0.0] * count
        self.error: list[Exception | None] = [None] * count
        for index, watched in enumerate(self.watched):
            watched.read = lambda index=index: self._read(index)  # type: ignore[misc]

    def _read(self, index: int) -> int:
        while self.hangs[index]:
            self.stuck[index] = True
            time.sleep(0.01)
        time.sleep(self.delay[index])
        self.read_at[index].append(time.monotonic())
        self.reads[index] += 1
        if (error := self.error[index]) is not None:
            raise error
        return 0


@contextlib.contextmanager
def _link(connected: threading.Event, refused: threading.Semaphore) -> Iterator[Link]:
    if not connected.is_set():
        refused.release()
        raise PartError("driver_not_loaded")
    yield Link(0, "590.48.01", 1)


def _until_over(at: float) -> None:
    """Wait for the simulated GPU's own clock."""
    until(lambda: time.monotonic() > at)


def _threads() -> int:
    return sum(thread.name == "gpu-sampler" for thread in threading.enumerate())
