"""Steps timed on the GPU, on a model of one that works behind the host."""

from __future__ import annotations

import gc
import itertools
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from client_device_model import Device
from client_ring_reader import ReadRing

import pyrometer
from pyrometer import _device_times, _step, ring


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    made = Device()
    monkeypatch.setitem(sys.modules, "torch", made.torch())
    for module in (_step, _device_times):
        monkeypatch.setattr(module, "_now", made.clock)
    return made


def train(run: pyrometer.Run, device: Device, times: list[float], every: int = 10) -> None:
    """Make a step of each time in ms, of ten kernels, and read the loss every so many steps."""
    for number, ms in enumerate(times, 1):
        with run.step():
            for _ in range(10):
                device.launch(ms / 10)
            if number % every == 0:
                device.item()


def on_device(content: Any) -> list[float | None]:
    return [None if r.device is None else round((r.device[1] - r.device[0]) / 1e6, 1) for r in content.records]


def on_host(content: Any) -> list[float]:
    return [round((r.end - r.start) / 1e6, 1) for r in content.records]


def test_ten_steps_have_their_own_times_where_the_host_waits_in_the_tenth(
    rings: str, device: Device, seen: ReadRing
) -> None:
    run = pyrometer.start("r", rings=rings)
    train(run, device, [100.0] * 10)
    run.close()
    content = seen(run.path)
    assert on_host(content)[:9] == [0.1] * 9, "the host only launches"
    assert on_host(content)[9] > 990
    assert on_device(content) == [100.0] * 10
    assert (content.header.timing, content.header.settled) == (ring.DEVICE_TIME, 10)


def test_a_slow_step_is_that_step(rings: str, device: Device, seen: ReadRing) -> None:
    run = pyrometer.start("r", rings=rings)
    train(run, device, [100.0] * 4 + [300.0] + [100.0] * 15)
    run.close()
    assert on_device(seen(run.path)) == [100.0] * 4 + [300.0] + [100.0] * 15


def test_times_follow_each_other_by_the_hosts_clock(rings: str, device: Device, seen: ReadRing) -> None:
    run = pyrometer.start("r", rings=rings)
    train(run, device, [100.0] * 30)
    run.close()
    records = seen(run.path).records
    spans = [record.device for record in records]
    assert all(span is not None for span in spans)
    known = [span for span in spans if span is not None]
    assert all(abs(before[1] - after[0]) < 1_000_000 for before, after in itertools.pairwise(known))
    assert abs(known[-1][1] - records[-1].end) < 1_000_000, "the host waited in the last"


def test_a_tick_is_timed_as_a_step_is(rings: str, device: Device, seen: ReadRing) -> None:
    run = pyrometer.start("r", rings=rings)
    run.tick()
    for number in range(1, 21):
        device.launch(50.0)
        if number % 10 == 0:
            device.item()
        run.tick()
    run.close()
    assert on_device(seen(run.path)) == [50.0] * 20


def test_what_lies_between_two_steps_belongs_to_neither(rings: str, device: Device, seen: ReadRing) -> None:
    run = pyrometer.start("r", rings=rings)
    for _ in range(3):
        train(run, device, [100.0] * 5, every=5)
        for _ in range(100):
            device.launch(20.0)  # an evaluation, which the host doesn't wait for
    device.item()
    run.close()
    assert on_device(seen(run.path)) == [100.0] * 15


def test_until_the_gpu_has_passed_a_step_its_time_is_open(rings: str, device: Device, seen: ReadRing) -> None:
    run = pyrometer.start("r", rings=rings)
    train(run, device, [100.0] * 5, every=100)
    content = seen(run.path)
    assert (content.header.count, content.header.settled) == (5, 0)
    assert on_device(content) == [None] * 5
    device.item()
    train(run, device, [100.0])
    assert seen(run.path).header.settled == 5
    run.close()


def test_cuda_may_come_up_after_the_start(rings: str, device: Device, seen: ReadRing) -> None:
    device.initialized = False
    run = pyrometer.start("r", rings=rings)
    with run.step():
        device.initialized = True
        device.launch(100.0)
        device.item()
    train(run, device, [100.0] * 10)
    run.close()
    content = seen(run.path)
    assert on_device(content) == [None] + [100.0] * 10
    assert (content.header.timing, content.header.settled) == (ring.DEVICE_TIME, 11)


def test_a_job_without_a_gpu_is_asked_no_more_after_its_first_steps(rings: str, device: Device, seen: ReadRing) -> None:
    device.initialized = False
    run = pyrometer.start("r", rings=rings)
    train(run, device, [1.0] * 150)
    assert len(run._step.observers) <= 1, "the first steps' own"
    run.close()
    assert seen(run.path).header.timing == ring.HOST_TIME


def test_an_error_of_cuda_leaves_launches_and_says_so(rings: str, device: Device, seen: ReadRing) -> None:
    run = pyrometer.start("r", rings=rings)
    train(run, device, [100.0] * 10)
    device.broken = True
    train(run, device, [100.0] * 10)
    run.close()
    content = seen(run.path)
    assert on_device(content)[:9] == [100.0] * 9
    assert on_device(content)[10:] == [None] * 10
    assert content.header.timing == ring.LAUNCH_TIME
    assert content.header.count == 20


def test_where_it_is_switched_off_the_times_are_launches(
    rings: str, device: Device, seen: ReadRing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYROMETER_DEVICE_TIMES", "0")
    run = pyrometer.start("r", rings=rings)
    train(run, device, [100.0] * 10)
    run.close()
    content = seen(run.path)
    assert (content.header.timing, device.events) == (ring.LAUNCH_TIME, 0)
    assert on_device(content) == [None] * 10


def test_ranks_whose_batches_nobody_serves_record_no_events(rings: str, device: Device, seen: ReadRing) -> None:
    run = pyrometer.start("r", rings=rings, rank=1)
    train(run, device, [100.0] * 10)
    run.close()
    assert (seen(run.path).header.timing, device.events) == (ring.HOST_TIME, 0)


def test_steps_beyond_the_pool_share_the_time_of_their_span(
    rings: str, device: Device, seen: ReadRing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_device_times, "_MOST_EVENTS", 4)
    run = pyrometer.start("r", rings=rings)
    train(run, device, [100.0] * 40, every=20)
    run.close()
    content = seen(run.path)
    assert device.events == 4
    assert sum(ms for ms in on_device(content) if ms is not None) == pytest.approx(4000, rel=0.1)
    assert content.header.settled == 40


def test_a_step_that_is_captured_into_a_graph_is_left_alone(rings: str, device: Device, seen: ReadRing) -> None:
    run = pyrometer.start("r", rings=rings)
    train(run, device, [100.0] * 10)
    device.capturing = True
    train(run, device, [0.0])
    device.capturing = False
    train(run, device, [100.0] * 10)
    run.close()
    content = seen(run.path)
    assert content.header.timing == ring.DEVICE_TIME
    assert on_device(content)[:10] == [100.0] * 10
    assert on_device(content)[12:] == [100.0] * 9


def test_a_dropped_step_leaves_no_time(rings: str, device: Device, seen: ReadRing) -> None:
    run = pyrometer.start("r", rings=rings)
    train(run, device, [100.0] * 10)
    run.step().__enter__()
    device.launch(500.0)
    run.step().discard()
    train(run, device, [100.0] * 10)
    run.close()
    assert on_device(seen(run.path)) == [100.0] * 20


def test_no_step_allocates(rings: str, device: Device) -> None:
    run = pyrometer.start("r", rings=rings)
    train(run, device, [1.0] * 1000)
    made = device.events
    gc.collect()
    tracemalloc.start()
    train(run, device, [1.0] * 1000)
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    run.close()
    assert device.events == made <= 20
    assert kept < 10_000


def test_a_forked_child_calls_nothing(rings: str, device: Device) -> None:
    run = pyrometer.start("r", rings=rings)
    train(run, device, [1.0] * 10)
    run.abandon("forked child")
    device.broken = True
    device.capturing = True
    train(run, device, [1.0] * 10)
    assert Path(run.path).exists()
