"""Whose time the batches have: the GPU's once it is known, and of launches only their mean."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import pytest

from pyrometer import ring
from pyrometer_exporters.framework.metrics import Sample
from pyrometer_exporters.node.train import families
from pyrometer_exporters.node.train.collector import TrainCollector
from pyrometer_exporters.node.train.timing import PATIENCE_SECONDS
from pyrometer_kit.http_message import Request

Rings = Callable[..., Any]


def launched(made: Any, count: int, start: float = 900.0, *, last: float = 0.0) -> None:
    """Write steps as a host has them that runs ahead of its GPU; the last may wait for it."""
    for number in range(count):
        end = start + 0.01 + (last if number == count - 1 else 0.0)
        made.step(start, end, loss=1.0)
        start = end


def settle(made: Any, spans: list[tuple[float, float]], first: int = 0) -> None:
    """Write the times that the steps had on the GPU."""
    for number, (start, end) in enumerate(spans, first):
        at = ring.FIRST_RECORD_SLOT + number * ring.RECORD_SLOTS
        made.slot(at + ring.DEVICE_START, int(start * 1e9))
        made.slot(at + ring.DEVICE_END, int(end * 1e9))
        made.slot(at + ring.FLAGS, ring.FLAG_DEVICE | ring.FLAG_LOSS)
    made.slot(ring.SETTLED_SLOT, first + len(spans))


def served(collector: TrainCollector, name: str) -> list[float]:
    body = collector.batches(Request("GET", "/batches")).body.decode()
    return [round(float(value), 3) for value in re.findall(rf"(?m)^pyrometer_train_batch_{name}\{{.*\}} (\S+) ", body)]


def timing(collector: TrainCollector) -> list[str]:
    samples = collector.collect(time.monotonic() + 5)
    return [s.labels[3] for s in samples if isinstance(s, Sample) and s.family is families.TIMING_INFO]


def test_ten_steps_are_served_with_the_gpus_times(collector: TrainCollector, rings: Rings) -> None:
    made = rings()
    made.slot(ring.TIMING_SLOT, ring.DEVICE_TIME)
    launched(made, 10, last=10.0)
    times = [1.0] * 4 + [2.0] + [1.0] * 5
    settle(made, [(900 + sum(times[:n]), 900 + sum(times[: n + 1])) for n in range(10)])
    assert served(collector, "step_seconds") == times
    assert timing(collector) == ["device"]


def test_a_batch_waits_until_the_gpu_has_passed_it(collector: TrainCollector, rings: Rings) -> None:
    made = rings()
    made.slot(ring.TIMING_SLOT, ring.DEVICE_TIME)
    launched(made, 3)
    assert served(collector, "step_seconds") == []
    settle(made, [(900.0, 901.0), (901.0, 902.0)])
    assert served(collector, "step_seconds") == [1.0, 1.0]
    settle(made, [(902.0, 903.5)], first=2)
    assert served(collector, "step_seconds") == [1.0, 1.0, 1.5]


def test_the_latest_step_is_known_before_its_time_is(collector: TrainCollector, rings: Rings) -> None:
    made = rings()
    made.slot(ring.TIMING_SLOT, ring.DEVICE_TIME)
    launched(made, 3)
    samples = [s for s in collector.collect(time.monotonic() + 5) if isinstance(s, Sample)]
    assert [s.value for s in samples if s.family is families.LAST_STEP_NUMBER] == [102]
    assert [s.value for s in samples if s.family is families.STEPS] == [3]


@pytest.mark.parametrize("end", ["crash", "close"])
def test_what_the_gpu_never_passed_is_one_mean(collector: TrainCollector, rings: Rings, end: str) -> None:
    made = rings()
    made.slot(ring.TIMING_SLOT, ring.DEVICE_TIME)
    launched(made, 4, last=4.0)
    settle(made, [(900.0, 902.0)])
    assert served(collector, "step_seconds") == [2.0]
    getattr(made, end)()
    for _ in range(2):
        assert served(collector, "step_seconds") == [2.0, 1.343]
        assert served(collector, "steps") == [3]


def test_a_gpu_that_hangs_keeps_its_steps_back_for_ten_minutes_only(
    collector: TrainCollector, rings: Rings, clock: Any
) -> None:
    made = rings()
    made.slot(ring.TIMING_SLOT, ring.DEVICE_TIME)
    launched(made, 5)
    assert served(collector, "step_seconds") == []
    clock.advance(PATIENCE_SECONDS - 1)
    assert served(collector, "step_seconds") == []
    clock.advance(2)
    served(collector, "step_seconds")
    made.close()
    assert served(collector, "step_seconds") == [0.01]
    assert served(collector, "steps") == [5]


def test_launches_are_served_as_the_mean_up_to_the_step_that_waited(collector: TrainCollector, rings: Rings) -> None:
    made = rings()
    made.slot(ring.TIMING_SLOT, ring.LAUNCH_TIME)
    launched(made, 10, 900.0, last=9.9)
    launched(made, 10, 910.0, last=19.9)
    assert served(collector, "step_seconds") == [1.0, 2.0]
    assert served(collector, "steps") == [10, 10]
    assert served(collector, "mfu_ratio") == [round(6e15 / 8 / 989.4e12, 3), round(3e15 / 8 / 989.4e12, 3)]
    assert timing(collector) == ["launch"]


def test_an_impossible_mfu_of_single_launches_is_no_reason_to_have_none(
    collector: TrainCollector, rings: Rings
) -> None:
    made = rings()
    made.slot(ring.TIMING_SLOT, ring.LAUNCH_TIME)
    launched(made, 10, 900.0, last=9.9)
    samples = [s for s in collector.collect(time.monotonic() + 5) if isinstance(s, Sample)]
    assert [s for s in samples if s.family is families.MFU_UNKNOWN] == []


def test_a_mean_has_the_tags_of_all_its_steps(collector: TrainCollector, rings: Rings) -> None:
    made = rings()
    made.slot(ring.TIMING_SLOT, ring.LAUNCH_TIME)
    for number in range(6):
        made.step(900 + number, 901 + number, ring.TAG_BITS["eval"] if number in (3, 4) else 0)
    made.close()
    served(collector, "steps")
    body = collector.batches(Request("GET", "/batches")).body.decode()
    assert served(collector, "steps") == [6]
    assert sorted(re.findall(r'tag="(\w+)"} 1 ', body)) == ["eval", "warmup"]


def test_even_steps_are_means_of_ten_seconds(collector: TrainCollector, rings: Rings) -> None:
    made = rings()
    made.slot(ring.TIMING_SLOT, ring.LAUNCH_TIME)
    for number in range(22):
        made.step(900 + number, 901 + number)
    assert served(collector, "steps") == [10, 10]


def test_a_rank_without_a_gpu_is_timed_by_its_host(collector: TrainCollector, rings: Rings) -> None:
    rings().step(998, 1000)
    assert timing(collector) == ["host"]
    assert served(collector, "step_seconds") == [2.0]


@pytest.mark.parametrize("number", [-1, 3, 1 << 62])
def test_a_timing_that_nobody_knows_is_none(collector: TrainCollector, rings: Rings, number: int) -> None:
    made = rings()
    made.step(998, 1000)
    made.slot(ring.TIMING_SLOT, number)
    assert timing(collector) == []


@pytest.mark.parametrize("span", [(5.0, 4.0), (0.0, 0.0), (900.0, 9e8)])
def test_times_of_the_gpu_that_make_no_sense_reach_no_batch(
    collector: TrainCollector, rings: Rings, span: tuple[float, float]
) -> None:
    made = rings()
    made.slot(ring.TIMING_SLOT, ring.DEVICE_TIME)
    made.step(998, 1000)
    settle(made, [span])
    assert served(collector, "step_seconds") in ([], [2.0])
