"""Families that an ordinary run lacks are on a golden page, too."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pyrometer import ring
from pyrometer_exporters.framework.collector import Context
from pyrometer_exporters.framework.exposition import Renderer
from pyrometer_exporters.framework.metrics import Sample
from pyrometer_exporters.node.train import collector as module
from pyrometer_exporters.node.train.collector import TrainCollector
from pyrometer_kit.http_message import Request

GOLDEN = Path(__file__).parent / "golden/metrics.txt"
Rings = Callable[..., Any]


@pytest.fixture
def collector(context: Context, monkeypatch: pytest.MonkeyPatch) -> Iterator[TrainCollector]:
    monkeypatch.setattr(module, "POLL_SECONDS", 3600.0)
    made = TrainCollector(context)
    yield made
    made.close()


def test_runs_out_of_the_ordinary_are_on_a_golden_page(
    collector: TrainCollector, rings: Rings, clock: Any, golden: Callable[[str, str], None]
) -> None:
    """Serve a rank that failed, a log without GPUs, a suspect MFU, a link, and steps that were skipped or missed."""
    failed = rings("failed", run="failed", expected_mfu=0.42)
    failed.text(ring.EXIT_SLOT, "torch.OutOfMemoryError")
    failed.text(ring.LINKS_SLOT, "wandb https://wandb.ai/lab/p/runs/x1\n")
    failed.step(998, 999, loss=float("nan"), grad_norm=0.5)
    failed.slot(ring.SKIPPED_SLOT, 5)
    failed.slot(ring.LONGEST_TICK_SLOT, 1_500_000_000)
    log = rings("log", run="log", world_size=0, source="log:nanogpt")
    log.step(990, 1000, steps=10, number=10, loss=2.0, reported_flops=4e14, reported_mfu=0.4)
    fast = rings("fast", run="fast")
    for n in range(30):
        fast.step(1000 + n, 1000 + n + 6e15 / (8 * 989.4e12 * 0.8))
    list(collector.collect(time.monotonic() + 5))
    failed.crash()
    ordinary = set(re.findall(r"^# HELP (\S+)", GOLDEN.read_text(encoding="utf-8"), re.MULTILINE))
    samples = [item for item in collector.collect(time.monotonic() + 5) if isinstance(item, Sample)]
    text = Renderer().text(sample for sample in samples if sample.family.name not in ordinary).decode()
    batches = collector.batches(Request("GET", "/batches")).body.decode().splitlines(keepends=True)
    text += "".join(line for line in batches if not line.startswith("#") and line.partition("{")[0] not in ordinary)
    golden(text, "golden/rare.txt")
