"""Rings in shared memory, and reading them back with the exporter's own reader."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pyrometer_exporters.node.train.rings import Header, Record, RingFile

LAUNCHERS = (
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", "SLURM_JOB_ID",
    "SLURM_RESTART_COUNT", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_RUN_ID", "JOB_NAME", "CUDA_VISIBLE_DEVICES",
    "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE", "MPI_LOCALRANKID", "PMI_RANK",
    "PMI_SIZE", "JOB_COMPLETION_INDEX", "PYROMETER_RINGS", "PYROMETER_ATTEMPT", "PYROMETER_STACKS",
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


class Seen:
    """A ring as the exporter sees it."""

    def __init__(self, path: str | Path) -> None:
        file = RingFile(str(path))
        try:
            self.meta = file.meta
            self.header: Header = file.header()
            self.records: list[Record] = list(file.records(0, self.header.count))
            self.alive = file.alive()
        finally:
            file.close()


@pytest.fixture
def seen() -> Callable[[str | Path], Seen]:
    return Seen


@pytest.fixture
def python(rings: str) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a script in a process of its own; warnings are errors there as well, its rings go to ``rings``."""

    def run(script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-W", "error", "-c", textwrap.dedent(script), *arguments],
            capture_output=True, text=True, timeout=60, check=False,
            env={"PYROMETER_RINGS": rings, "PATH": "/usr/bin:/bin", **environment},
        )  # fmt: skip

    return run
