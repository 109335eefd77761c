"""Metrics and parts by names of the job's own, as they are served."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import pyrometer
from pyrometer import ring
from pyrometer_exporters.framework.collector import Context
from pyrometer_exporters.framework.metrics import Sample
from pyrometer_exporters.node.train import families
from pyrometer_exporters.node.train.batches import Point
from pyrometer_exporters.node.train.collector import TrainCollector
from pyrometer_exporters.node.train.points import MAX_METRICS, PointStore
from pyrometer_kit.clock import SystemClock
from pyrometer_kit.http_message import Request


@pytest.fixture
def collector(context: Context, monkeypatch: pytest.MonkeyPatch) -> Iterator[TrainCollector]:
    context.rings.mkdir()
    made = TrainCollector(Context(context.flags, SystemClock(), context.sysfs, context.procfs, context.rings, None))
    yield made
    made.close()


def test_they_are_served(collector: TrainCollector, context: Context, golden: Callable[[str, str], None]) -> None:
    run = pyrometer.start("r", rings=str(context.rings), rank=0, job_id="77")
    with run.step():
        with run.part("fwd"):
            pass
        run.record(lr=0.5)
    samples = {s.labels: s.value for s in collector.collect(time.monotonic() + 5) if isinstance(s, Sample)}
    assert samples["r", "77", "0", "0", "fwd"] > 0
    body = collector.batches(Request("GET", "/batches")).body.decode()
    (value,) = re.findall(r"^(pyrometer_train_batch_value\{.*\} \S+) ", body, re.MULTILINE)
    golden(f"{value} TIME\n", "golden/values.txt")
    with run.step():
        run.part("fwd").__enter__()
        samples = {s.labels: s.value for s in collector.collect(time.monotonic() + 5) if isinstance(s, Sample)}
        assert any(labels[-1] == "fwd" for labels in samples if len(labels) == 5)
    run.close()


def test_a_description_of_an_earlier_client_is_not_taken_for_names(
    collector: TrainCollector, context: Context, rings: Any
) -> None:
    made = rings("long", model="m" * 2300)
    made.slot(ring.PART_SLOT, len(ring.PARTS) + 1)
    made.slot(ring.NAMED_PART_TOTALS_SLOT, 5_000_000_000)
    made.step(999, 1000)
    parts = {s.labels[4] for s in collector.collect(time.monotonic() + 5)
             if isinstance(s, Sample) and s.family is families.PART_SECONDS}  # fmt: skip
    assert parts == set()


def test_a_run_has_at_most_sixteen_metrics_over_all_its_rings() -> None:
    store = PointStore()
    for n in range(40):
        store.add(("r", "0"), Point(n, n, n, 1.0, None, None, None, None, (), metrics=((f"m{n}", 1.0),)))
    series = store.pending("c")["r", "0"].series()
    assert len([name for name in series if name.startswith("value:")]) == MAX_METRICS
