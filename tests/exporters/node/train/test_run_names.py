"""Runs of one name on a node: told apart by their job; those of one job by a name that is told."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyrometer_exporters.node.train.cursor_file import CursorFile
from pyrometer_exporters.node.train.points import PointStore
from pyrometer_exporters.node.train.tracker import KEEP_CRASHED_SECONDS, Tracker

Rings = Callable[..., Any]


def names(tracker: Tracker) -> dict[str, str]:
    tracker.poll()
    return {rank.ring.removesuffix(".ring"): rank.meta.run for rank in tracker.ranks()}


def test_a_second_job_of_one_name_is_served_beside_the_first(
    tracker: Tracker, rings: Rings, store: PointStore, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = rings("a", job_id="77"), rings("b", job_id="78")
    for n in range(80):
        first.step(1000 + n, 1001 + n)
        second.step(1000 + n, 1001 + n)
    with caplog.at_level(logging.WARNING):
        assert names(tracker) == {"a": "llama", "b": "llama"}
    assert {key: len(of.points) for key, of in store.pending("c").items()} == {
        ("llama", "77", "0"): 80, ("llama", "78", "0"): 80,
    }  # fmt: skip
    assert tracker.names.clashes == {}
    assert "two runs" not in caplog.text


def test_a_rank_of_another_world_is_another_run(
    tracker: Tracker, rings: Rings, caplog: pytest.LogCaptureFixture
) -> None:
    for pid, (name, rank, world) in enumerate((("a", 0, 8), ("b", 1, 8), ("c", 2, 64)), 11):
        made = rings(name, rank=rank, world_size=world, launcher=100 + world)
        made.slot(2, pid)
        made.step(1000, 1001)
    with caplog.at_level(logging.WARNING):
        assert names(tracker) == {"a": "llama", "b": "llama", "c": "llama@launcher164"}
        tracker.poll()
    assert tracker.names.clashes == {("llama@launcher164", "77", "0"): "llama"}
    assert len([r for r in caplog.records if "two runs on this node report as run llama of job 77" in r.message]) == 1


def test_the_next_job_of_a_chain_continues_the_run(tracker: Tracker, rings: Rings, clock: Any) -> None:
    first = rings("a", job_id="77")
    first.step(1000, 1001)
    assert names(tracker) == {"a": "llama"}
    first.crash()
    tracker.poll()
    clock.advance(10)
    next_job = rings("b", job_id="78")
    next_job.step(1010, 1011)
    assert names(tracker) == {"a": "llama", "b": "llama"}
    assert tracker.names.clashes == {}
    clock.advance(KEEP_CRASHED_SECONDS)  # the end of a rank is kept for a day, unless its run goes on
    assert names(tracker) == {"b": "llama"}


def test_without_a_scheduler_two_living_processes_of_one_rank_clash(tracker: Tracker, rings: Rings) -> None:
    for name, pid in (("a", 11), ("b", 12)):
        made = rings(name, job_id="", launcher=pid + 100)
        made.slot(2, pid)
        made.step(1000, 1001)
    assert names(tracker) == {"a": "llama", "b": "llama@launcher112"}


SWEEP = {"a": "llama", "b": "llama@launcher812", "c": "llama@pid13", "d": "llama@pid14"}


@pytest.fixture
def sweep(rings: Rings) -> dict[str, Any]:
    """Four processes of one shell, as ``for g in 0 1 2 3; do python train.py & done`` starts them."""
    made = {name: rings(name, job_id="", launcher=812) for name in SWEEP}
    for pid, one in enumerate(made.values(), 11):
        one.slot(2, pid)
        one.step(1000, 1001)
    return made


def test_each_process_of_a_sweep_has_a_name_of_its_own(tracker: Tracker, sweep: dict[str, Any]) -> None:
    assert names(tracker) == SWEEP


def test_so_do_those_of_one_scheduled_job(tracker: Tracker, rings: Rings) -> None:
    for pid, name in enumerate("abc", 11):
        made = rings(name, job_id="77", launcher=812)
        made.slot(2, pid)
        made.step(1000, 1001)
    assert len(set(names(tracker).values())) == 3


@pytest.mark.parametrize("gone", ["", "a", "b", "ac"])
def test_a_sweep_keeps_its_names_after_a_restart_of_the_exporter(
    folder: Path, sweep: dict[str, Any], clock: Any, tmp_path: Path, gone: str
) -> None:
    before = Tracker(folder, clock, PointStore())
    names(before)
    CursorFile(tmp_path).save({}, None, before.names.holders)
    before.close()
    for name in gone:
        sweep[name].crash()
        sweep[name].path.unlink()
    after = Tracker(folder, clock, PointStore(), None, CursorFile(tmp_path).load().holders)
    assert names(after) == {name: run for name, run in SWEEP.items() if name not in gone}
    after.close()


def test_a_rank_that_comes_late_has_the_name_of_its_job(tracker: Tracker, rings: Rings) -> None:
    made = {}
    for pid, (name, launcher, rank) in enumerate((("a", 811, 0), ("b", 812, 0), ("c", 811, 1), ("d", 812, 1)), 11):
        made[name] = rings(name, job_id="", launcher=launcher, rank=rank)
        made[name].slot(2, pid)
        made[name].step(1000, 1001)
        if name == "c":
            tracker.poll()
            made["a"].close()
            made["c"].close()
    assert names(tracker)["d"] == "llama@launcher812"


def test_new_holders_are_told_from_those_saved_before(tracker: Tracker, rings: Rings) -> None:
    rings("a").step(1000, 1001)
    tracker.poll()
    saved = tracker.names.holders
    rings("b", run="other").step(1000, 1001)
    tracker.poll()
    assert tracker.names.holders != saved


def test_a_process_that_starts_again_supersedes_itself(tracker: Tracker, rings: Rings) -> None:
    for name in ("a", "b"):
        rings(name, job_id="").step(1000, 1001)
        tracker.poll()
    assert names(tracker) == {"b": "llama"}


def test_a_follower_beside_the_job_is_no_clash(tracker: Tracker, rings: Rings) -> None:
    for name, pid, source in (("a", 11, "client"), ("b", 12, "log:megatron")):
        made = rings(name, source=source)
        made.slot(2, pid)
        made.step(1000, 1001)
    assert names(tracker) == {"b": "llama"}


def test_a_process_that_has_started_the_ranks_is_none(tracker: Tracker, rings: Rings) -> None:
    """As ``torch.multiprocessing.spawn`` does: the script reports at its top, in the parent as in each child."""
    rings("parent", job_id="", launcher=10).slot(2, 11)
    assert names(tracker) == {"parent": "llama"}
    for rank in (0, 1):
        child = rings(f"child{rank}", job_id="", launcher=11, rank=rank)
        child.slot(2, 12 + rank)
        child.step(1000, 1001)
    assert names(tracker) == {"child0": "llama", "child1": "llama"}
    assert tracker.names.clashes == {}
