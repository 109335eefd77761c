"""Links to trackers as the exporter serves them, whatever a job wrote into its ring."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from pyrometer import ring
from pyrometer_exporters.framework.metrics import Sample
from pyrometer_exporters.node.train import families
from pyrometer_exporters.node.train.collector import TrainCollector
from pyrometer_exporters.node.train.description import links_of

Rings = Callable[..., Any]


def write(made: Any, text: str) -> None:
    padded = text.encode().ljust(ring.LINKS_BYTES, b"\0")
    for at in range(0, ring.LINKS_BYTES, 8):
        made.slot(ring.LINKS_SLOT + at // 8, int.from_bytes(padded[at : at + 8], "little", signed=True))


def served(collector: TrainCollector) -> list[tuple[str, ...]]:
    samples = collector.collect(time.monotonic() + 5)
    return [s.labels[3:] for s in samples if isinstance(s, Sample) and s.family is families.LINK_INFO]


def test_links_are_served_with_the_run(collector: TrainCollector, rings: Rings) -> None:
    made = rings()
    made.step(998, 999)
    assert served(collector) == []
    write(made, "wandb https://wandb.ai/lab/p/runs/x1\nmlflow http://mlflow:5000/#/experiments/1/runs/2\n")
    made.step(999, 1000)
    assert served(collector) == [
        ("wandb", "https://wandb.ai/lab/p/runs/x1"), ("mlflow", "http://mlflow:5000/#/experiments/1/runs/2"),
    ]  # fmt: skip


def test_those_of_another_rank_are_not(collector: TrainCollector, rings: Rings) -> None:
    made = rings(rank=1, reporting=False)
    write(made, "wandb https://wandb.ai/x\n")
    made.step(999, 1000)
    assert served(collector) == []


@pytest.mark.parametrize(
    "text",
    [
        "wandb javascript:alert(1)", "wandb https://a/?apiKey=1", "wandb https://me:pw@a/", "wandb https://a/>|x", "x",
        "W https://a", "a" * 17 + " https://a", "wandb https://a/\x00b", "wandb  https://a", "wandb https://",
    ],
)  # fmt: skip
def test_what_is_no_plain_web_address_is_left_out(text: str) -> None:
    assert links_of(text) == ()


def test_four_are_enough() -> None:
    assert len(links_of("\n".join(f"n{number} https://a/{number}" for number in range(9)))) == 4
