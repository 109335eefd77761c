"""Any user of the node is a stranger to the others: what one writes or asks costs nobody else anything."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from pyrometer import ring
from pyrometer_exporters.framework.collector import Context
from pyrometer_exporters.framework.exposition import Renderer
from pyrometer_exporters.framework.metrics import Sample
from pyrometer_exporters.framework.shared_folder import fair_shares
from pyrometer_exporters.node.train import families, limits
from pyrometer_exporters.node.train import points as points_module
from pyrometer_exporters.node.train import ring_folder as folder_module
from pyrometer_exporters.node.train import rings as rings_module
from pyrometer_exporters.node.train import tracker as tracker_module
from pyrometer_exporters.node.train.collector import TrainCollector
from pyrometer_exporters.node.train.description import MAX_TEXT
from pyrometer_exporters.node.train.points import PointStore
from pyrometer_exporters.node.train.ring_folder import Listed, RingFolder
from pyrometer_exporters.node.train.tracker import Tracker
from pyrometer_kit.http_message import Request

Rings = Callable[..., Any]
KEY = ("llama", "77", "0")
OTHER = os.getuid() + 1


@pytest.fixture
def users(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Owners of ring files by name, others' are ours: only root could make files of two users."""
    owners: dict[str, int] = {}
    listed, read_meta = folder_module._listed, rings_module.RingFile._read_meta

    def as_listed(entry: os.DirEntry[str]) -> Listed | None:
        found = listed(entry)
        return found and found._replace(uid=owners.get(entry.name, found.uid))

    def as_read(file: rings_module.RingFile) -> Any:
        meta = read_meta(file)
        file.uid = owners.get(os.path.basename(file.path), file.uid)  # noqa: PTH119
        return meta

    monkeypatch.setattr(folder_module, "_listed", as_listed)
    monkeypatch.setattr(rings_module.RingFile, "_read_meta", as_read)
    return owners


def stamps(store: PointStore, key: tuple[str, str] = KEY) -> list[int]:
    return [p.timestamp for p in store.pending("c")[key].points]


def test_a_step_that_ends_in_the_future_leaves_the_run_its_time(
    tracker: Tracker, rings: Rings, clock: Any, store: PointStore
) -> None:
    job = rings("job")
    job.step(1000, 1001)
    forged = rings("forged")
    now = clock.now
    forged.step(1000, 2**62 / 1e9)
    clock.now = now
    tracker.poll()
    job.step(1001, 1002)
    tracker.poll()
    assert [at / 1000 - clock.offset for at in stamps(store)] == [1001, 1002]
    assert tracker.future == 1


def test_a_saved_position_in_the_future_is_forgotten(context: Context, rings: Rings, clock: Any, folder: Path) -> None:
    """As an exporter that believed a forged ring has left it: all later batches were stamped from there on."""
    assert context.state is not None
    far = 6_400_000_000_000
    cursor = ["llama", "77", "0", far, {"gone.ring": 1}]
    saved = {"runs": {"consumers": {"10.0.0.1/a": [cursor]}}, "offset_ms": None}
    (context.state / "train.json").write_text(json.dumps(saved))
    rings("job").step(1000, 1001)
    collector = TrainCollector(context)
    try:
        reply = collector.batches(Request("GET", "/batches", query={"consumer": "a"}, peer="10.0.0.1"))
    finally:
        collector.close()
    assert f'batch_step{{run="llama",job_id="77",attempt="0"}} 100 {int(clock.wall())}' in reply.body.decode()


def test_a_clock_set_back_by_more_than_prometheus_takes_begins_anew(
    tracker: Tracker, rings: Rings, clock: Any, store: PointStore
) -> None:
    job = rings("job")
    job.step(999, 1000)
    tracker.poll()
    clock.offset -= 7200
    tracker.poll()
    job.step(1000, 1001)
    tracker.poll()
    assert stamps(store)[-1] == pytest.approx(clock.wall() * 1000, abs=1)


def test_a_run_belongs_to_the_user_who_opened_it(
    tracker: Tracker, rings: Rings, store: PointStore, users: dict[str, int]
) -> None:
    rings("job").step(1000, 1001)
    tracker.poll()
    users["forged.ring"] = OTHER
    rings("forged", rank=1).step(1000, 1001)
    tracker.poll()
    runs = {rank.ring: rank.meta.run for rank in tracker.ranks()}
    assert runs == {"job.ring": "llama", "forged.ring": f"llama@uid{OTHER}"}


def test_a_closed_ring_of_another_user_takes_nothing_of_a_run(
    tracker: Tracker, rings: Rings, store: PointStore, users: dict[str, int]
) -> None:
    job = rings("job")
    job.step(1000, 1001, loss=2.0)
    tracker.poll()
    users["forged.ring"] = OTHER
    forged = rings("forged")
    forged.step(1001, 1002, loss=99.0)
    forged.close()
    tracker.poll()
    job.step(1001, 1003, loss=2.0)
    tracker.poll()
    runs = {rank.ring: rank.meta.run for rank in tracker.ranks()}
    assert runs == {"job.ring": "llama", "forged.ring": f"llama@uid{OTHER}"}
    assert [p.loss for p in store.pending("c")[KEY].points] == [2.0, 2.0]


def test_who_was_first_is_known_after_a_restart(  # noqa: PLR0917  fixtures
    context: Context,
    rings: Rings,
    store: PointStore,
    users: dict[str, int],
    clock: Any,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    golden: Callable[[str, str], None],
) -> None:
    users["forged.ring"] = OTHER
    rings("forged").step(1000, 1001)
    collector = TrainCollector(context)
    list(collector.collect(time.monotonic() + 5))
    collector.close()
    rings("job").step(1000, 1001)
    os.utime(folder / "forged.ring")
    users["flood.ring"] = OTHER
    rings("flood", run="flood").step(1000, 1001)
    monkeypatch.setattr(tracker_module, "MAX_RINGS", 2)
    again = TrainCollector(context)
    try:
        samples = [s for s in again.collect(time.monotonic() + 5) if isinstance(s, Sample)]
    finally:
        again.close()
    told = [s for s in samples if s.family in {families.NAME_CLASH, families.RINGS_LEFT_OUT}]
    text = Renderer().text(told).decode().replace(f'user="{OTHER}"', 'user="1"')  # the file has root's OTHER
    golden(text, "golden/hostile.txt")


def test_a_run_is_free_again_when_its_owner_is_gone(
    tracker: Tracker, rings: Rings, clock: Any, users: dict[str, int]
) -> None:
    users["first.ring"] = OTHER
    rings("first").close()
    tracker.poll()
    clock.advance(tracker_module.KEEP_CLOSED_SECONDS + 1)
    rings("second").step(clock.now, clock.now + 1)
    tracker.poll()
    tracker.poll()
    assert [rank.ring for rank in tracker.ranks()] == ["second.ring"]


def test_runs_that_come_and_go_cost_no_descriptors_and_a_bounded_number_of_series(
    tracker: Tracker, rings: Rings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracker_module, "MAX_RINGS_PER_USER", 20)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for n in range(100):
        made = rings(f"r{n}", run=f"run{n}")
        made.step(1000, 1001)
        made.close()
        tracker.poll()
        made.path.unlink()
    tracker.poll()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert len(tracker.ranks()) <= 20
    rings("job").step(1000, 1001)
    tracker.poll()
    assert "llama" in {rank.meta.run for rank in tracker.ranks()}


def test_one_user_with_too_many_rings_costs_another_none(
    tracker: Tracker, rings: Rings, monkeypatch: pytest.MonkeyPatch, users: dict[str, int]
) -> None:
    monkeypatch.setattr(tracker_module, "MAX_RINGS", 10)
    for n in range(30):
        users[f"flood{n}.ring"] = OTHER
        rings(f"flood{n}", run=f"flood{n}").step(1000, 1001)
    tracker.poll()
    for n in range(4):
        rings(f"job{n}", rank=n).step(1000, 1001)
    tracker.poll()
    by_user = [rank.file.uid for rank in tracker.ranks()]
    assert (by_user.count(os.getuid()), by_user.count(OTHER)) == (4, 6)
    assert tracker.left_out() == {OTHER: 24}


def test_empty_rings_with_a_future_time_hide_no_new_job(tracker: Tracker, rings: Rings, folder: Path) -> None:
    for n in range(300):
        (folder / f"a{n}.ring").touch()
        os.utime(folder / f"a{n}.ring", (2**31, 2**31))
    tracker.poll()
    rings("job").step(1000, 1001)
    tracker.poll()
    assert [rank.ring for rank in tracker.ranks()] == ["job.ring"]
    assert len(tracker.downs()) <= tracker_module.MAX_REPORTED + 1


def test_a_folder_of_very_many_files_is_listed_seldom(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir()
    for n in range(3000):
        (folder / f"{n}.ring").touch()
    monkeypatch.setattr(folder_module, "LONG_SECONDS", 0.0)
    monkeypatch.setattr(folder_module, "LISTING_SHARE", 1e-6)
    listing = RingFolder(folder)
    assert len(listing.rings()) == limits.MAX_RINGS_PER_USER
    assert listing.left_out == {os.getuid(): 3000 - limits.MAX_RINGS_PER_USER}
    (folder / "new.ring").touch()
    monkeypatch.setattr(folder_module.os, "scandir", None)
    assert len(listing.rings()) == limits.MAX_RINGS_PER_USER


def test_full_rings_are_read_a_share_at_a_time_fair_among_users(
    tracker: Tracker, rings: Rings, store: PointStore, monkeypatch: pytest.MonkeyPatch, users: dict[str, int]
) -> None:
    monkeypatch.setattr(tracker_module, "MAX_RECORDS_PER_POLL", 100)
    for n in range(3):
        users[f"flood{n}.ring"] = OTHER
        flood = rings(f"flood{n}", run=f"flood{n}")
        for step in range(200):
            flood.step(1000 + step, 1000.5 + step)
    job = rings("job")
    for step in range(40):
        job.step(1000 + step, 1000.5 + step)
    tracker.poll()
    read = {key[0]: len(of.points) for key, of in store.pending("c").items()}
    assert read == {"llama": 40, "flood0": 20, "flood1": 20, "flood2": 20}
    for _ in range(12):
        tracker.poll()
    assert {len(of.points) for key, of in store.pending("c").items() if key != KEY} == {200}


def test_batches_of_all_runs_have_a_limit_fair_among_users(store: PointStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(points_module, "MAX_POINTS_IN_ALL", 100)
    for n in range(500):
        for run in range(3):
            store.add((f"flood{run}", "0"), point(n), OTHER)
        if n < 30:
            store.add(KEY, point(n), 1000)
    store.trim()
    kept = {key[0]: len(of.points) for key, of in store.pending("c").items()}
    assert kept["llama"] == 30
    assert sum(kept.values()) == 100
    assert store.shortened == 3 * 500 - 70


def point(n: int) -> Any:
    return points_module.Point(1000 * n, n, n, 1.0, None, None, None, None, ())


@given(st.dictionaries(st.integers(), st.integers(0, 1000), max_size=9), st.integers(0, 2000), st.integers(1, 900))
def test_shares_are_fair(wanted: dict[int, int], limit: int, each: int) -> None:
    shares = fair_shares(wanted, limit, each)
    assert sum(shares.values()) <= limit
    assert all(shares[who] <= min(wants, each) for who, wants in wanted.items())
    short = [who for who in wanted if shares[who] < min(wanted[who], each)]
    assert not short or min(shares[who] for who in short) + 1 >= max(shares.values())


def test_each_user_may_have_a_folder_of_its_own(tracker: Tracker, rings: Rings, folder: Path, clock: Any) -> None:
    from tests.exporters.node.train.conftest import Ring

    uid = os.getuid()
    for name, run in ((f"rings-{uid}", "own"), (f"rings-{uid}.x7", "squatted"), (f"rings-{uid + 1}", "not theirs")):
        Ring(folder.parent / name, "r0", clock, run=run).step(1000, 1001)
    (folder.parent / f"rings-{uid}.link").symlink_to(folder.parent / f"rings-{uid + 1}")
    tracker.poll()
    assert sorted(rank.meta.run for rank in tracker.ranks()) == ["own", "squatted"]


def test_a_users_folder_is_found_without_a_shared_one(store: PointStore, tmp_path: Path, clock: Any) -> None:
    from tests.exporters.node.train.conftest import Ring

    tracker = Tracker(tmp_path / "rings", clock, store)
    with pytest.raises(FileNotFoundError):
        tracker.poll()
    made = Ring(tmp_path / f"rings-{os.getuid()}", "r0", clock)
    tracker.poll()
    assert len(tracker.ranks()) == 1
    made.crash()
    tracker.close()


def test_a_shared_folder_that_others_can_empty_is_reported(
    tracker: Tracker, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.chmod(0o1777)
    assert tracker.downs() == []
    folder.chmod(0o777)
    assert "no sticky bit" in tracker.downs()[0].detail
    monkeypatch.setattr(folder_module.os, "geteuid", lambda: os.getuid() + 1)
    if os.getuid():
        assert "belongs to uid" in tracker.downs()[0].detail


def test_a_long_text_is_cut(tracker: Tracker, rings: Rings) -> None:
    rings("job", run="x" * 1500, model="y" * 900).step(1000, 1001)
    tracker.poll()
    (rank,) = tracker.ranks()
    assert (len(rank.meta.run), len(rank.text("model"))) == (MAX_TEXT, MAX_TEXT)
    assert ring.META_BYTES > 2 * MAX_TEXT


def test_hostile_names_read_back(context: Context, rings: Rings) -> None:
    for n, name in enumerate(('"', "\\", "a\nb", "\ud800", "<!channel>", "\U0001f525", "x" * 900)):
        rings(f"r{n}", run=name).step(999, 1000)
    collector = TrainCollector(context)
    text = collector.batches(Request("GET", "/batches")).body.decode()
    collector.close()
    families = text_string_to_metric_families(text)
    assert len({s.labels["run"] for family in families for s in family.samples}) == 7
