"""The database truncated, filled with garbage, removed or replaced: set aside, begun again, and never in silence."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from alerting_fakes import alert

from pyrometer_alerting.incidents.storage.store import LOST_FACT, REFILL_FACT, Store, StoreError

FILE = "alerting.sqlite3"


def filled(folder: Path, *, crash: bool = False) -> None:
    """Write a file with a few hundred rows; with `crash` its WAL stays, as after SIGKILL."""
    store = Store(folder)
    with store.transaction() as tx:
        tx.save_fact("receiver:pyrometer", "1")
        tx.save_fact("channel:#gpu-alerts", "C1")
    for number in range(300):
        with store.transaction() as tx:
            tx.save_alert(alert(fingerprint=f"{number:016x}"), None, number)
    if crash:
        for path in folder.glob(f"{FILE}*"):
            shutil.copy(path, folder / f"{path.name}.copy")
    store.close()
    if crash:
        for path in folder.glob(f"{FILE}*.copy"):
            path.rename(path.with_suffix(""))


def lost(store: Store) -> dict[str, Any] | None:
    with store.transaction() as tx:
        said = tx.fact(LOST_FACT)
        assert (tx.fact(REFILL_FACT) is not None) is (said is not None)
    return json.loads(said) if said is not None else None


def broken(folder: Path) -> list[Path]:
    """The files that were set aside, without their WALs."""
    return [path for path in folder.glob(f"{FILE}.broken-*") if path.name.endswith("Z")]


def half(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def garbage_page(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(4096 * 4)
        file.write(b"\xa5" * 4096)


def garbage_header(path: Path) -> None:
    path.write_bytes(b"\xa5" * 4096 + path.read_bytes()[4096:])


BREAK = [half, garbage_page, garbage_header, lambda path: path.write_bytes(b"no database at all " * 500)]


@pytest.mark.parametrize("damage", BREAK)
def test_a_broken_file_is_set_aside_at_the_start_and_what_was_lost_is_noted(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    filled(tmp_path)
    damage(tmp_path / FILE)
    store = Store(tmp_path)
    found = lost(store)
    assert found is not None
    assert found["why"].startswith("the database was broken (")
    (kept,) = broken(tmp_path)
    assert kept.name in found["kept"]
    with store.transaction() as tx:
        tx.save_fact("works", "1")
    store.close()
    store = Store(tmp_path)
    assert len(broken(tmp_path)) == 1, "told once"
    store.close()


@pytest.mark.parametrize("damage", BREAK)
def test_a_file_that_breaks_while_it_is_open_is_replaced_by_the_next_change(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    filled(tmp_path)
    store = Store(tmp_path)
    damage(tmp_path / FILE)
    for _ in range(3):
        with suppress(StoreError), store.transaction() as tx:
            for number in range(300):
                tx.save_alert(alert(fingerprint=f"{number:016x}"), None, 1.0)
    with suppress(StoreError):
        store.check()
    if lost(store) is None:  # the pages that broke were in its memory, and are whole again
        store.close()
        assert sqlite3.connect(tmp_path / FILE).execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return
    with store.transaction() as tx:
        tx.save_fact("works", "1")
    store.close()
    assert broken(tmp_path)


@pytest.mark.parametrize("keeps", ["nothing", "an empty file"])
def test_a_wal_that_was_removed_or_cut_is_noticed(tmp_path: Path, keeps: str) -> None:
    filled(tmp_path, crash=True)
    wal = tmp_path / f"{FILE}-wal"
    size = wal.stat().st_size
    assert size > 100_000
    wal.unlink()
    (tmp_path / f"{FILE}-shm").unlink()
    if keeps == "an empty file":
        wal.touch()
    store = Store(tmp_path)
    found = lost(store)
    assert found is not None
    assert "commits)" in found["why"]
    store.close()
    store = Store(tmp_path)
    assert lost(store) == found, "until it is told"
    store.close()


def test_a_crash_alone_loses_nothing_and_says_nothing(tmp_path: Path) -> None:
    filled(tmp_path, crash=True)
    store = Store(tmp_path)
    assert lost(store) is None
    with store.transaction() as tx:
        assert tx.known_alert(f"{299:016x}")[0] is not None
    store.close()


@pytest.mark.parametrize("how", ["removed", "emptied"])
def test_a_missing_database_file_is_not_taken_for_a_first_start(tmp_path: Path, how: str) -> None:
    filled(tmp_path)
    (tmp_path / FILE).unlink() if how == "removed" else (tmp_path / FILE).write_bytes(b"")
    store = Store(tmp_path)
    found = lost(store)
    assert found is not None
    assert "it is empty" in found["why"]
    store.close()


def test_a_file_that_is_removed_while_it_is_open_is_noticed_at_the_next_change(tmp_path: Path) -> None:
    filled(tmp_path)
    store = Store(tmp_path)
    (tmp_path / FILE).unlink()
    with pytest.raises(StoreError, match="the file was removed while in use"), store.transaction() as tx:
        tx.save_fact("x", "1")
    assert lost(store) is not None
    assert (tmp_path / FILE).exists()
    store.close()


def test_an_old_copy_in_its_place_is_noticed(tmp_path: Path) -> None:
    filled(tmp_path)
    shutil.copy(tmp_path / FILE, tmp_path / "old")
    store = Store(tmp_path)
    with store.transaction() as tx:
        tx.save_fact("newer", "1")
    store.close()
    shutil.copy(tmp_path / "old", tmp_path / FILE)
    store = Store(tmp_path)
    found = lost(store)
    assert found is not None
    assert "its newest changes are missing" in found["why"]
    store.close()


def test_a_new_file_still_knows_whose_alerts_are_ours(tmp_path: Path) -> None:
    filled(tmp_path)
    store = Store(tmp_path)
    store.back_up(1_800_000_000.0)
    store.close()
    (tmp_path / FILE).write_bytes(b"no database at all " * 500)
    store = Store(tmp_path)
    with store.transaction() as tx:
        assert tx.facts("receiver:") == {"pyrometer": "1"}
        assert tx.facts("channel:") == {"#gpu-alerts": "C1"}
    store.close()


def test_no_more_than_three_broken_files_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        filled(tmp_path)
        (tmp_path / FILE).write_bytes(b"no database at all " * 500)
        monkeypatch.setattr("time.strftime", lambda *_, n=number: f"20261123T13150{n}Z")
        Store(tmp_path).close()
        monkeypatch.undo()
    assert len(broken(tmp_path)) == 3


def test_copies_are_made_once_a_day_and_seven_are_kept(tmp_path: Path) -> None:
    filled(tmp_path)
    store = Store(tmp_path)
    assert store.backed_up_at() is None
    for day in range(10):
        store.back_up(1_800_000_000.0 + 86_400 * day)
        store.back_up(1_800_000_000.0 + 86_400 * day + 60)
    copies = sorted((tmp_path / "backup").iterdir())
    assert len(copies) == 7
    assert copies[-1].name == "alerting-2027-01-24.sqlite3"
    assert copies[-1].stat().st_mode & 0o777 == 0o600
    assert store.backed_up_at() is not None
    store.close()
    other = tmp_path / "restored"
    other.mkdir()
    shutil.copy(copies[-1], other / FILE)
    restored = Store(other)
    with restored.transaction() as tx:
        assert tx.known_alert(f"{299:016x}")[0] is not None
    assert lost(restored) is None
    restored.close()


def test_a_file_of_a_newer_release_is_refused_and_left_alone(tmp_path: Path) -> None:
    filled(tmp_path)
    with sqlite3.connect(tmp_path / FILE) as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(StoreError, match="written by another version"):
        Store(tmp_path)
    assert broken(tmp_path) == []


def test_a_command_beside_the_service_never_replaces_a_file(tmp_path: Path) -> None:
    filled(tmp_path)
    garbage_header(tmp_path / FILE)
    before = (tmp_path / FILE).read_bytes()
    with pytest.raises(StoreError, match="not a database"):
        Store(tmp_path, alone=False)
    assert (tmp_path / FILE).read_bytes() == before
