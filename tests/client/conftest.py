"""Rings in shared memory, and reading them back with the exporter's own reader."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import pyrometer


def _load(name: str, file: str) -> ModuleType:
    """Make a helper importable: the tests have no packages."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(file))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


_module = _load("client_ring_reader", "ring_reader.py")
_load("client_device_model", "device_model.py")
Python, ReadRing, RingContent = _module.Python, _module.ReadRing, _module.RingContent

LAUNCHERS = (
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", "SLURM_JOB_ID",
    "SLURM_RESTART_COUNT", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_RUN_ID", "JOB_NAME", "CUDA_VISIBLE_DEVICES",
    "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE", "MPI_LOCALRANKID", "PMI_RANK",
    "PMI_SIZE", "JOB_COMPLETION_INDEX", "PYROMETER_RINGS", "PYROMETER_RUN", "PYROMETER_GROUP", "SLURM_JOB_NAME",
    "SLURM_ARRAY_TASK_ID", "KUBERNETES_SERVICE_HOST", "PYROMETER_ATTEMPT", "PYROMETER_STACKS", "PYROMETER_WAITS",
    "PYROMETER_DEVICE_TIMES",
)  # fmt: skip


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine that runs the tests may itself be a Slurm node."""
    for name in LAUNCHERS:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def rings() -> Iterator[str]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield folder


@pytest.fixture
def run(rings: str) -> Iterator[pyrometer.Run]:
    made = pyrometer.start("r", rings=rings)
    yield made
    made.close()


@pytest.fixture
def seen() -> ReadRing:
    return RingContent


@pytest.fixture
def python(rings: str) -> Python:
    """Run a script in a process of its own; warnings are errors there as well, its rings go to ``rings``."""

    def run(script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-W", "error", "-c", textwrap.dedent(script), *arguments],
            capture_output=True, text=True, timeout=60, check=False,
            env={
                "PYROMETER_RINGS": rings, "PATH": "/usr/bin:/bin", "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
                **environment,
            },
        )  # fmt: skip

    return run
