"""Which ranks there are, which have ended, and which of two rings of one rank counts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyrometer import ring
from pyrometer_exporters.node.train import ring_folder as folder_module
from pyrometer_exporters.node.train import tracker as tracker_module
from pyrometer_exporters.node.train.points import PointStore
from pyrometer_exporters.node.train.tracker import KEEP_CLOSED_SECONDS, KEEP_CRASHED_SECONDS, KEEP_END_SECONDS, Tracker

Rings = Callable[..., Any]
KEY = ("llama", "77", "0")


def sequences(store: PointStore, key: tuple[str, str] = KEY) -> list[int]:
    return [p.sequence for p in store.pending("c")[key].points]


def test_batches_of_the_reporting_rank_only(tracker: Tracker, rings: Rings, store: PointStore) -> None:
    rings("r0").step(1000, 1001)
    other = rings("r1", rank=1, reporting=False)
    other.step(1000, 1001)
    tracker.poll()
    assert sequences(store) == [0]
    assert sorted(rank.meta.rank for rank in tracker.ranks()) == ["0", "1"]


def test_new_steps_are_followed_over_the_turn_of_the_ring(tracker: Tracker, rings: Rings, store: PointStore) -> None:
    made = rings()
    for n in range(9000):
        made.step(1000 + n, 1000.5 + n)
        if n % 1000 == 0:
            tracker.poll()
    tracker.poll()
    (pending,) = store.pending("c").values()
    # Fifty minutes are kept, whatever the ring holds.
    assert pending.points[-1].sequence in range(5998, 9000)
    assert store._series[KEY].newest == max(p.timestamp for p in store._series[KEY].points.after(0))
    found = [p.sequence for p in store._series[KEY].points.after(0)]
    assert found == list(range(found[0], 9000))


@pytest.mark.parametrize(("end", "keep"), [("close", KEEP_CLOSED_SECONDS), ("crash", KEEP_END_SECONDS)])
def test_an_ended_rank_stays_for_a_while(  # noqa: PLR0917  fixtures
    tracker: Tracker, rings: Rings, clock: Any, store: PointStore, end: str, keep: float
) -> None:
    made = rings()
    made.step(999, 1000)
    tracker.poll()
    getattr(made, end)()
    clock.advance(5)
    tracker.poll()
    clock.advance(keep - 10)
    tracker.poll()
    assert len(tracker.ranks()) == 1
    clock.advance(20)
    for _ in range(3):
        tracker.poll()
        assert tracker.ranks() == []
        assert store.pending("c") == {}
        assert tracker.downs() == []


def test_a_slow_rank_is_not_a_dead_one(tracker: Tracker, rings: Rings, clock: Any) -> None:
    rings().step(999, 1000)
    for _ in range(5):
        clock.advance(10_000)
        tracker.poll()
    assert len(tracker.ranks()) == 1


def test_the_rank_that_died_first_is_found_gone_first(tracker: Tracker, rings: Rings, clock: Any) -> None:
    """Their last steps ended at the same moment, as those of all ranks do."""
    first, second = rings("r0"), rings("r1", rank=1, reporting=False)
    for made in (first, second):
        made.step(1000, 1001)
    tracker.poll()
    for made in (second, first):
        made.crash()
        clock.advance(1)
        tracker.poll()
    ends = {rank.meta.rank: rank.ended_at for rank in tracker.ranks()}
    assert ends == {"1": 1002, "0": 1003}


def test_the_end_of_a_ring_found_after_a_restart_lies_in_the_past(tracker: Tracker, rings: Rings, clock: Any) -> None:
    made = rings()
    made.step(999, 1000)
    made.close()
    clock.advance(KEEP_CLOSED_SECONDS + 10)
    tracker.poll()
    assert tracker.ranks() == []


def test_a_newer_ring_of_the_same_rank_supersedes(
    tracker: Tracker, rings: Rings, clock: Any, store: PointStore
) -> None:
    # In the folder the newer one comes first by name.
    old = rings("z")
    old.step(1000, 1001)
    old.crash()
    clock.advance(60)
    rings("a").step(1050, 1051)
    tracker.poll()
    (rank,) = tracker.ranks()
    assert rank.file.path.endswith("a.ring")
    stamps = [(p.ring, p.timestamp) for p in store.pending("c")[KEY].points]
    assert [ring for ring, _ in stamps] == ["z.ring", "a.ring"]
    assert stamps[1][1] - stamps[0][1] == 50_000


def test_another_attempt_is_another_series(tracker: Tracker, rings: Rings, store: PointStore) -> None:
    rings("a", attempt=0).step(1000, 1001)
    rings("b", attempt=1).step(1000, 1001)
    tracker.poll()
    assert set(store.pending("c")) == {("llama", "77", "0"), ("llama", "77", "1")}


def test_a_ring_unlinked_by_the_next_start_is_followed_to_its_end(
    tracker: Tracker, rings: Rings, clock: Any, store: PointStore
) -> None:
    made = rings()
    made.step(1000, 1001)
    tracker.poll()
    made.path.unlink()
    made.step(1001, 1002)
    tracker.poll()
    assert sequences(store) == [0, 1]
    made.crash()
    tracker.poll()
    clock.advance(KEEP_END_SECONDS + 10)
    tracker.poll()
    assert tracker.ranks() == []


def test_the_end_of_a_rank_is_known_until_its_run_begins_again(tracker: Tracker, rings: Rings, clock: Any) -> None:
    made = rings("a", attempt=0)
    made.step(999, 1000)
    tracker.poll()
    made.crash()
    tracker.poll()
    clock.advance(KEEP_CRASHED_SECONDS + 3600)
    tracker.poll()
    assert [rank.ended_at for rank in tracker.ranks()] == [clock.monotonic() - KEEP_CRASHED_SECONDS - 3600]
    rings("b", attempt=1, created=clock.monotonic()).step(clock.monotonic() - 1, clock.monotonic())
    tracker.poll()
    assert [rank.meta.attempt for rank in tracker.ranks()] == ["1"]


def test_with_too_many_files_the_newest_are_followed_and_it_is_said(
    tracker: Tracker, rings: Rings, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that crashes in a loop leaves a ring per rank and restart."""
    monkeypatch.setattr(tracker_module, "MAX_RINGS", 10)
    for n in range(20):
        (folder / f"a{n}.ring").touch()
        os.utime(folder / f"a{n}.ring", (1, 1))
    rings("zzz")
    tracker.poll()
    assert len(tracker.ranks()) == 1
    assert [down.detail for down in tracker.downs() if down.reason == "too_many_rings"] == [
        "11 of the oldest files are not read"
    ]


def test_other_files_are_none_of_ours(tracker: Tracker, folder: Path) -> None:
    for name in (".r.ring", ".r.ring.new", "notes.txt", "ring"):
        (folder / name).write_text("x")
    tracker.poll()
    assert tracker.downs() == []


def test_a_backward_clock_moves_points_forward_by_a_millisecond(
    tracker: Tracker, rings: Rings, clock: Any, store: PointStore
) -> None:
    made = rings()
    made.step(999, 1000)
    tracker.poll()
    clock.offset -= 300
    for n in range(3):
        made.step(1000 + n, 1001 + n)
    tracker.poll()
    stamps = [p.timestamp for p in store.pending("c")[KEY].points]
    assert [b - a for a, b in zip(stamps, stamps[1:], strict=False)] == [1, 1, 1]  # noqa: RUF007  as it reads


def test_rings_of_version_1_are_read_as_well(tracker: Tracker, rings: Rings, store: PointStore) -> None:
    old, new = rings("old", version=1), rings("new", run="new")
    for made in (old, new):
        for n in range(5000):
            made.step(1000 + n / 10, 1000.05 + n / 10, loss=float(n))
    tracker.poll()
    for key in (KEY, ("new", "77", "0")):
        points = store.pending("c")[key].points
        assert [(p.sequence, p.loss) for p in points[-2:]] == [(p.sequence, p.sequence) for p in points[-2:]]
        assert len(list(store._series[key].points.after(0))) == ring.CAPACITY - 1
    assert tracker.downs() == []


def test_mfu_of_a_batch(tracker: Tracker, rings: Rings, store: PointStore) -> None:
    made = rings()
    made.step(1000, 1002, loss=2.5)
    made.step(1002, 1004, tokens=500_000)
    made.step(1004, 1006, flops=1e15)
    made.step(1006, 1006)
    tracker.poll()
    first, second, third, instant = store.pending("c")[KEY].points
    # 1e6 tokens x 6e9 FLOPs over 2 s and 8 GPUs of 989.4 TFLOP/s.
    assert first.mfu == pytest.approx(6e15 / 2 / 8 / 989.4e12)
    assert (first.step, first.loss, first.tags) == (100, 2.5, ("warmup",))
    assert second.flops_per_second == pytest.approx(3e15 / 2 / 8)
    assert third.flops_per_second == pytest.approx(1e15 / 2 / 8)
    assert third.tags == ()
    assert instant.seconds > 0


def test_a_ring_is_found_though_the_folder_was_listed_at_the_very_time_it_came(
    tracker: Tracker, rings: Rings, folder: Path
) -> None:
    """The clock of a file system stops for milliseconds."""
    rings("r0").step(1000, 1001)
    tracker.poll()
    then = folder.stat().st_mtime_ns
    rings("r1", rank=1).step(1000, 1001)
    os.utime(folder, ns=(then, then))
    tracker.poll()
    assert len(tracker.ranks()) == 2


def test_a_folder_that_stands_still_is_not_listed_again(
    tracker: Tracker, rings: Rings, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rings("r0").step(1000, 1001)
    for old in (folder, folder.parent):
        os.utime(old, (time.time() - 5, time.time() - 5))
    tracker.poll()
    with monkeypatch.context() as patch:
        patch.setattr(folder_module.os, "scandir", None)
        tracker.poll()
    rings("r1", rank=1).step(1000, 1001)
    tracker.poll()
    assert len(tracker.ranks()) == 2


def test_clocks_that_were_not_read_at_once_are_not_one_that_was_set(
    tracker: Tracker, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tracker.offset()
    wall = clock.wall

    def held_up() -> float:
        clock.advance(3)
        return float(wall())

    with monkeypatch.context() as patch:
        patch.setattr(clock, "wall", held_up)
        assert tracker.offset() == before
    clock.offset += 3
    assert tracker.offset() == before + 3000
