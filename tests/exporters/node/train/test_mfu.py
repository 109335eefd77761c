"""A run's MFU is right or absent with its reason, never quietly wrong."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pyrometer import ring
from pyrometer_exporters.framework.metrics import Sample
from pyrometer_exporters.node.train.collector import TrainCollector
from pyrometer_kit.http_message import Request

Rings = Callable[..., Any]


def reasons(collector: TrainCollector) -> set[str]:
    samples = [s for s in collector.collect(time.monotonic() + 5) if isinstance(s, Sample)]
    return {s.labels[3] for s in samples if s.family.name == "pyrometer_train_mfu_unknown_info"}


def suspect(collector: TrainCollector) -> bool:
    samples = [s for s in collector.collect(time.monotonic() + 5) if isinstance(s, Sample)]
    return any(s.family.name == "pyrometer_train_mfu_suspect" for s in samples)


def test_a_known_mfu_lacks_nothing(collector: TrainCollector, rings: Rings) -> None:
    rings().step(998, 1000)
    assert reasons(collector) == set()
    assert not suspect(collector)


@pytest.mark.parametrize(
    ("meta", "expected"),
    [
        ({"gpu_model": ""}, {"peak"}),
        ({"dtype": "int3"}, {"peak"}),
        ({"tokens_per_step": None}, {"tokens"}),
        ({"flops_per_token": None}, {"flops"}),
        ({"flops_per_token": None, "tokens_per_step": None, "gpu_model": ""}, {"flops", "tokens", "peak"}),
        ({"world_size": 0, "source": "log:nanogpt"}, {"gpus"}),
    ],
)
def test_what_mfu_lacks_is_named(
    meta: dict[str, Any], expected: set[str], collector: TrainCollector, rings: Rings
) -> None:
    rings(**meta).step(998, 1000)
    assert reasons(collector) == expected


def test_only_the_reporting_rank_gives_reasons(collector: TrainCollector, rings: Rings) -> None:
    rings(rank=1, reporting=False, gpu_model="").step(998, 1000)
    assert reasons(collector) == set()


def test_flops_of_each_step_need_no_default(collector: TrainCollector, rings: Rings) -> None:
    made = rings(tokens_per_step=None, flops_per_token=None)
    made.slot(ring.FLOPS_EXTRA_SLOT, 1e15, "d")
    made.step(998, 1000, flops=1e15)
    assert reasons(collector) == set()


def test_a_gpu_that_is_known_from_the_first_step_on_has_a_peak(collector: TrainCollector, rings: Rings) -> None:
    made = rings(gpu_model="")
    assert reasons(collector) == {"peak"}
    for place, word in enumerate(_slots(b"NVIDIA H100 80GB HBM3")):
        made.slot(ring.GPU_MODEL_SLOT + place, word)
    made.step(998, 1000)
    assert reasons(collector) == set()
    assert "pyrometer_train_batch_mfu_ratio{" in collector.batches(Request("GET", "/batches")).body.decode()


def test_an_impossible_mfu_is_left_out_and_the_run_says_why(collector: TrainCollector, rings: Rings) -> None:
    made = rings(flops_per_token=6e10)  # 6e16 FLOPs by 8 H100 in 2 s: 3.8 times their peak
    made.step(998, 1000)
    assert reasons(collector) == {"implausible"}
    body = collector.batches(Request("GET", "/batches")).body.decode()
    assert "pyrometer_train_batch_mfu_ratio{" not in body
    assert "pyrometer_train_batch_flops_per_second{" in body


def test_a_hundred_believable_batches_later_it_is_believed(collector: TrainCollector, rings: Rings) -> None:
    made = rings()
    made.step(998, 998.001)
    for n in range(99):
        made.step(1000 + 2 * n, 1002 + 2 * n)
    assert reasons(collector) == {"implausible"}
    made.step(1200, 1202)
    assert reasons(collector) == set()


def test_a_suspect_mfu_is_served_and_logged_once(
    collector: TrainCollector, rings: Rings, caplog: pytest.LogCaptureFixture
) -> None:
    made = rings()
    with caplog.at_level(logging.WARNING):
        for n in range(30):
            start = 1000.0 + n
            made.step(start, start + 6e15 / (8 * 989.4e12 * 0.8))
        assert suspect(collector)
    assert [r.message for r in caplog.records if "MFU of 0.80" in r.message and "flops_per_token" in r.message]
    assert len(caplog.records) == 1
    assert reasons(collector) == set()


def _slots(text: bytes) -> Iterator[int]:
    padded = text.ljust(ring.GPU_MODEL_BYTES, b"\0")
    for at in range(0, ring.GPU_MODEL_BYTES, 8):
        yield int.from_bytes(padded[at : at + 8], "little", signed=True)
