"""The GPU's name by NVML, where the job knows none."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyrometer_exporters.framework.collector import Context
from pyrometer_exporters.framework.gpu_models import GpuModels
from pyrometer_exporters.framework.metrics import Sample
from pyrometer_exporters.node.train import families
from pyrometer_exporters.node.train.collector import TrainCollector
from pyrometer_exporters.node.train.rank_exit import HeldProcess

Rings = Callable[..., Any]
H100 = "NVIDIA H100 80GB HBM3"


@pytest.fixture
def on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HeldProcess, "uses_gpu", lambda _self, _procfs: True)


def peaks(collector: TrainCollector) -> list[float]:
    samples = collector.collect(time.monotonic() + 5)
    return [s.value for s in samples if isinstance(s, Sample) and s.family is families.PEAK_FLOPS]


@pytest.mark.usefixtures("on_a_gpu")
def test_a_job_without_a_name_gets_that_of_nvml(context: Context, collector: TrainCollector, rings: Rings) -> None:
    context.gpu_models.note("GPU-1", H100)
    rings(gpu_model="").step(999, 1000)
    assert peaks(collector) == [989.4e12]


def test_a_job_that_uses_no_gpu_gets_none(context: Context, collector: TrainCollector, rings: Rings) -> None:
    context.gpu_models.note("GPU-1", H100)
    rings(gpu_model="").step(999, 1000)
    assert peaks(collector) == []


@pytest.mark.usefixtures("on_a_gpu")
def test_another_gpus_uuid_is_no_match(context: Context, collector: TrainCollector, rings: Rings) -> None:
    context.gpu_models.note("GPU-2", H100)
    rings(gpu_model="").step(999, 1000)
    assert peaks(collector) == []


def test_without_a_uuid_all_gpus_must_be_alike() -> None:
    models = GpuModels()
    assert models.of("") == ""
    models.note("GPU-1", H100)
    models.note("GPU-2", H100)
    assert (models.of(""), models.of("GPU-2"), models.of("MIG-3")) == (H100, H100, "")
    models.note("GPU-3", "NVIDIA L40S")
    assert models.of("") == ""


def test_a_process_is_seen_by_the_devices_that_it_has_open(tmp_path: Path) -> None:
    import os

    process = HeldProcess(os.getpid())
    files = tmp_path / str(os.getpid()) / "fd"
    assert not process.uses_gpu(tmp_path)
    files.mkdir(parents=True)
    (files / "3").symlink_to("/dev/nvidiactl")
    assert not process.uses_gpu(tmp_path)
    (files / "4").symlink_to("/dev/nvidia0")
    assert process.uses_gpu(tmp_path)
    process.close()
