"""Files that a user puts into the rings' folder instead of rings: none blocks, leads elsewhere, or hides a job."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyrometer import ring
from pyrometer_exporters.framework.collector import Context
from pyrometer_exporters.node.train import families
from pyrometer_exporters.node.train.collector import TrainCollector
from pyrometer_exporters.node.train.tracker import Tracker

Rings = Callable[..., Any]
TERABYTE = 1 << 40
SECONDS = 20.0  # a read that blocks never ends; a busy machine takes a while


def polled(tracker: Tracker) -> list[str]:
    """Look twice; return the rings that are followed then."""
    began = time.monotonic()
    tracker.poll()
    tracker.poll()
    assert time.monotonic() - began < SECONDS
    return sorted(rank.ring for rank in tracker.ranks())


def endless(path: Path, _target: Path) -> None:
    path.symlink_to("/dev/zero")


def another(path: Path, target: Path) -> None:
    path.symlink_to(target)


def sparse(path: Path, _target: Path) -> None:
    with path.open("wb") as file:
        file.truncate(TERABYTE)


def listener(path: Path, _target: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        here = Path.cwd()
        os.chdir(path.parent)  # a socket's path has 107 characters at most
        try:
            made.bind(path.name)
        finally:
            os.chdir(here)


@pytest.mark.parametrize("made", [endless, another, sparse, listener])
def test_what_is_no_ring_is_bad_and_the_job_is_served(
    tracker: Tracker, rings: Rings, folder: Path, tmp_path: Path, made: Callable[[Path, Path], None]
) -> None:
    elsewhere = rings("elsewhere", run="elsewhere").path.rename(tmp_path / "elsewhere.ring")
    rings("job").step(1000, 1001)
    for number in range(20):
        made(folder / f"a{number}.ring", elsewhere)
    assert polled(tracker) == ["job.ring"]
    assert any(down.reason == "bad_ring" for down in tracker.downs())


@pytest.mark.parametrize("name", ["a\nb.ring", "\udcff.ring", '"} 1\nevil 1.ring', "-rf.ring", "a" * 240 + ".ring"])
def test_a_name_may_be_anything(tracker: Tracker, rings: Rings, folder: Path, name: str) -> None:
    rings("job").step(1000, 1001)
    Path(folder, name).touch()
    assert polled(tracker) == ["job.ring"]


def test_a_ring_of_a_terabyte_costs_what_a_ring_costs(tracker: Tracker, rings: Rings) -> None:
    large = rings("large")
    large.step(1000, 1001)
    os.ftruncate(large.fd, TERABYTE)
    assert polled(tracker) == ["large.ring"]


def test_a_ring_that_is_cut_and_filled_while_it_is_read_hides_no_job(tracker: Tracker, rings: Rings) -> None:
    rings("job").step(1000, 1001)
    moving = rings("moving", run="moving")
    size = os.fstat(moving.fd).st_size
    for turn in range(30):
        os.ftruncate(moving.fd, size if turn % 2 else (0, 100, ring.HEADER_BYTES, size - 1)[turn // 2 % 4])
        moving.step(1000 + turn, 1001 + turn)
        assert "job.ring" in polled(tracker)


@pytest.mark.parametrize("why", ["its rank died before it was found", "it is cut before its names"])
def test_names_of_parts_that_cannot_be_read_any_more_cost_no_other_rank(
    context: Context, rings: Rings, why: str
) -> None:
    job, other = rings("job"), rings("other", run="other")
    for made in (job, other):
        made.step(1000, 1001)
    other.slot(ring.NAMED_PART_TOTALS_SLOT, 10**9)
    other.text(ring.PART_NAMES_SLOT, "fetch")
    if why.startswith("its rank"):
        other.crash()
    else:
        os.ftruncate(other.fd, 8 * ring.PART_NAMES_SLOT)
    collector = TrainCollector(context)
    try:
        for _ in range(2):
            samples = list(collector.collect(time.monotonic() + SECONDS))
            steps = {s.labels[0] for s in samples if getattr(s, "family", None) is families.STEPS}
            assert "llama" in steps
            parts = {s.labels[-1] for s in samples if getattr(s, "family", None) is families.PART_SECONDS}
            assert parts == ({"fetch"} if why.startswith("its rank") else set())
    finally:
        collector.close()
