"""Ranks that no launcher's environment tells apart: those of a process group, made before or after the start."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from client_ring_reader import ReadRing

import pyrometer


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Any:
    """PyTorch's process group, not made yet."""
    module: Any = ModuleType("torch.distributed")
    module.made = False
    module.is_available = lambda: True
    module.is_initialized = lambda: module.made
    module.get_rank, module.get_world_size = (lambda: 2), (lambda: 4)
    monkeypatch.setitem(sys.modules, "torch.distributed", module)
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS"):
        monkeypatch.delenv(name, raising=False)
    return module


def who(meta: Any) -> tuple[str, str, int, bool]:
    return meta.rank, meta.local_rank, meta.world_size, meta.reporting


def test_a_process_group_tells_ranks_apart(rings: str, seen: ReadRing, group: Any) -> None:
    group.made = True
    run = pyrometer.start("r", rings=rings)
    assert who(seen(run.path).meta) == ("2", "2", 4, False)


def test_all_children_of_a_task_of_slurm_have_its_environment(
    rings: str, seen: ReadRing, group: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    group.made = True
    for name, value in (("SLURM_PROCID", "0"), ("SLURM_LOCALID", "0"), ("SLURM_NTASKS", "1")):
        monkeypatch.setenv(name, value)
    meta = seen(pyrometer.start("r", rings=rings).path).meta
    assert who(meta) == ("2", "2", 4, False)
    assert meta.texts["gpu"] == "", "which GPU it has is not known before CUDA is up"


def test_what_the_job_says_counts(rings: str, seen: ReadRing, group: Any) -> None:
    group.made = True
    assert who(seen(pyrometer.start("r", rings=rings, rank=0, world_size=64).path).meta) == ("0", "0", 64, True)


def test_a_launcher_that_agrees_tells_the_local_rank(
    rings: str, seen: ReadRing, group: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    group.made = True
    for name, value in (("RANK", "2"), ("LOCAL_RANK", "0"), ("WORLD_SIZE", "4")):
        monkeypatch.setenv(name, value)
    assert who(seen(pyrometer.start("r", rings=rings).path).meta) == ("2", "0", 4, False)


def test_a_group_that_is_made_later_is_seen_at_the_first_step(rings: str, seen: ReadRing, group: Any) -> None:
    run = pyrometer.start("r", rings=rings)
    first = run.path
    assert who(seen(first).meta) == ("0", "0", 1, True)
    group.made = True
    for loss in (1.0, 2.0, 3.0):
        with run.step(), run.part("forward"):
            run.record(loss=loss, lr=loss / 10)
    (path,) = Path(rings).iterdir()
    assert run.path == str(path) != first
    found = seen(path)
    assert who(found.meta) == ("2", "2", 4, False)
    assert found.header.count == 3
    assert [record.loss for record in found.records] == [1.0, 2.0, 3.0]
    assert found.header.step_total == sum(record.end - record.start for record in found.records)
    assert found.header.part_totals[pyrometer.PARTS.index("forward")] > 0
    run.close()
    assert seen(path).header.closed


def test_a_group_of_one_changes_nothing(rings: str, group: Any) -> None:
    run = pyrometer.start("r", rings=rings)
    path = run.path
    group.made = True
    group.get_rank, group.get_world_size = (lambda: 0), (lambda: 1)
    run.tick()
    run.tick()
    assert run.path == path
