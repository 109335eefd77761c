"""Skipped steps, losses that are no numbers, and values of one step over ranks, as they are served."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from pyrometer import ring
from pyrometer_exporters.framework.metrics import Sample
from pyrometer_exporters.node.train import families
from pyrometer_exporters.node.train.collector import TrainCollector
from pyrometer_kit.http_message import Request

Rings = Callable[..., Any]


def skipped(collector: TrainCollector) -> dict[str, float]:
    samples = [s for s in collector.collect(time.monotonic() + 5) if isinstance(s, Sample)]
    return {s.labels[4]: s.value for s in samples if s.family is families.SKIPPED_STEPS}


def test_none_is_absent(collector: TrainCollector, rings: Rings) -> None:
    rings().step(998, 1000, loss=1.0)
    assert skipped(collector) == {}


def test_both_kinds_are_counted_once(collector: TrainCollector, rings: Rings) -> None:
    made = rings()
    for loss in (float("nan"), 1.0, float("inf")):
        made.step(998, 999, loss=loss)
    made.slot(ring.SKIPPED_SLOT, 5)
    assert skipped(collector) == {"skipped": 5, "nan": 2}
    made.step(999, 1000, loss=float("nan"))
    assert skipped(collector) == {"skipped": 5, "nan": 3}


def test_values_of_a_step_join_over_ranks(collector: TrainCollector, rings: Rings) -> None:
    first, last = rings("r0", stage="0"), rings("r1", rank=1, reporting=False, stage="3")
    first.step(999, 1000)
    last.step(999, 1000, loss=2.5, grad_norm=0.5)
    list(collector.collect(time.monotonic() + 5))
    body = collector.batches(Request("GET", "/batches")).body.decode()
    assert 'pyrometer_train_batch_loss{run="llama",job_id="77",attempt="0"} 2.5 ' in body
    assert 'pyrometer_train_batch_grad_norm{run="llama",job_id="77",attempt="0"} 0.5 ' in body
    assert body.count("pyrometer_train_batch_step_seconds{") == 1


def test_a_job_in_a_time_namespace_is_read_by_our_clock(collector: TrainCollector, rings: Rings, clock: Any) -> None:
    ahead = 100_000
    made = rings(clock_offset=ahead * 1_000_000_000)
    made.step(ahead + 998, ahead + 1000)
    clock.now = 1000.0
    list(collector.collect(time.monotonic() + 5))
    body = collector.batches(Request("GET", "/batches")).body.decode()
    assert f'pyrometer_train_batch_step_seconds{{run="llama",job_id="77",attempt="0"}} 2 {int(clock.wall())}' in body
