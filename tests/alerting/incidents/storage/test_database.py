"""The file under the store: names that a later release looks for, numbers of commits, copies that are whole."""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
import stat
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from pyrometer_alerting.incidents.storage.database import BrokenFileError, Database, is_broken
from pyrometer_alerting.incidents.storage.engine import StoreError

NOW = 1_800_000_000.0
SURROUNDINGS = {"receiver:pyrometer": "1", "heard:alertmanager": "2", "channel:#gpu": "C1", "watchdog:main": "3"}


@contextmanager
def opened(folder: Path) -> Iterator[Database]:
    database = Database(folder, alone=True)
    database.open()
    try:
        yield database
    finally:
        database.close()


def commit(database: Database, **facts: str) -> int:
    """Save facts in one numbered commit."""
    db = database.writer
    db.execute("BEGIN IMMEDIATE")
    db.executemany("INSERT OR REPLACE INTO fact VALUES (?, ?)", facts.items())
    number = database.count(db)
    db.execute("COMMIT")
    database.note(number)
    return number


def damage(database: Database, table: str) -> None:
    """Fill the first page of a table with garbage; all others stay whole."""
    database.writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    (page,) = database.writer.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    with database.path.open("r+b") as file:
        file.seek(4096 * (page - 1))
        file.write(b"\xa5" * 4096)


def emptied(folder: Path) -> None:
    """Take away all facts but not the file, as an old copy from before the first commit would."""
    with closing(sqlite3.connect(folder / "alerting.sqlite3")) as db:
        db.execute("DELETE FROM fact")
        db.commit()


def test_it_leads_as_long_as_it_is_open_since_its_folder_is_locked(tmp_path: Path) -> None:
    with opened(tmp_path) as database:
        assert database.leads() is True


def test_commits_are_numbered_from_one_under_names_that_later_releases_read(tmp_path: Path) -> None:
    with opened(tmp_path) as database:
        assert [commit(database), commit(database)] == [1, 2]
        assert database.writer.execute("SELECT value FROM fact WHERE name = 'commits'").fetchone() == ("2",)
    assert (tmp_path / "commits").read_bytes() == (2).to_bytes(8, "little")


@pytest.mark.parametrize("commits", [1, 5])
def test_an_emptied_file_lacks_all_its_commits_and_takes_its_surroundings_from_a_copy(
    tmp_path: Path, commits: int
) -> None:
    with opened(tmp_path) as database:
        for _ in range(commits):
            commit(database, **SURROUNDINGS, other="4")
        database.back_up(NOW)
    emptied(tmp_path)
    with opened(tmp_path) as database:
        assert database.loss is not None
        assert database.loss.why == f"the database has changed since it was last used: it is empty ({commits} commits)"
        assert database.loss.facts == SURROUNDINGS
        assert database.loss.since == 0.0


def test_a_file_with_one_commit_of_three_lacks_the_newest_and_keeps_its_own_facts(tmp_path: Path) -> None:
    with opened(tmp_path) as database:
        commit(database, **SURROUNDINGS)
        database.back_up(NOW)  # nobody asks it: the file has facts of its own
        old = (tmp_path / "alerting.sqlite3").read_bytes()
        wal = Path(f"{database.path}-wal").read_bytes()
        commit(database)
        commit(database)
    (tmp_path / "alerting.sqlite3").write_bytes(old)
    Path(f"{tmp_path}/alerting.sqlite3-wal").write_bytes(wal)
    os.utime(tmp_path / "alerting.sqlite3", (NOW, NOW))
    os.utime(tmp_path / "alerting.sqlite3-wal", (NOW, NOW))
    with opened(tmp_path) as database:
        assert database.loss is not None
        assert "its newest changes are missing (2 commits)" in database.loss.why
        assert database.loss.facts == {}
        assert database.loss.since > NOW - 1


def test_a_damaged_file_is_never_kept_as_a_copy(tmp_path: Path) -> None:
    with opened(tmp_path) as database:
        for number in range(300):
            commit(database, **{f"fact{number}": "x" * 300})
        database.writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        with database.path.open("r+b") as file:
            file.seek(4096 * 4)
            file.write(b"\xa5" * 4096)
        with pytest.raises(BrokenFileError):
            database.back_up(NOW)
    assert list((tmp_path / "backup").glob("*.sqlite3")) == []


def test_a_copy_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    with opened(tmp_path) as database:
        commit(database)
        database.back_up(NOW)
    assert [path for path in synced if path.endswith("/backup/alerting-2027-01-15.new")]


def test_another_thread_may_read_and_close(tmp_path: Path) -> None:
    found: list[object] = []
    with opened(tmp_path) as database:
        commit(database)
        thread = threading.Thread(
            target=lambda: found.append(database.reader.execute("SELECT value FROM fact").fetchone())
        )
        thread.start()
        thread.join()
    assert found == [("1",)]


@pytest.mark.parametrize(("code", "broken"), [(11, True), (26, True), (11 | 1 << 8, True), (5, False), (13, False)])
def test_the_code_of_sqlite_says_whether_a_file_is_broken(code: int, broken: bool) -> None:
    error = sqlite3.DatabaseError("malformed, or whatever its words are" if not broken else "words of another release")
    error.sqlite_errorcode = code
    assert is_broken(error) is broken


def test_on_python_3_10_the_words_say_it() -> None:
    assert is_broken(sqlite3.DatabaseError("database disk image is malformed"))
    assert not is_broken(sqlite3.OperationalError("database is locked"))


def test_a_folder_that_any_release_uses_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(StoreError, match="another pyrometer-alerting uses this folder"):
            Database(tmp_path, alone=True).open()


def test_nobody_else_may_read_a_file_of_it_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with opened(tmp_path / "s") as database:
            commit(database)
            database.back_up(NOW)
    finally:
        os.umask(before)
    modes = {
        path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "s").rglob("*") if path.name != "lock"
    }
    assert modes == {
        "alerting.sqlite3": 0o600, "commits": 0o600, "backup": 0o700, "alerting-2027-01-15.sqlite3": 0o600,
    }  # fmt: skip
    assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o700


def test_what_is_committed_after_a_renewal_survives_a_crash(tmp_path: Path) -> None:
    """A connection to the old file that ends late would remove the new one's WAL, which has the same name."""
    with opened(tmp_path / "s") as database:
        commit(database)
        database.reader.execute("SELECT * FROM fact").fetchall()
        database.renew("for the test")
        commit(database, kept="1")
        shutil.copytree(tmp_path / "s", tmp_path / "crashed")
    with opened(tmp_path / "crashed") as database:
        assert database.loss is None
        assert database.writer.execute("SELECT value FROM fact WHERE name = 'kept'").fetchone() == ("1",)


def test_a_copy_that_was_begun_before_a_crash_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "backup").mkdir()
    (tmp_path / "backup" / "alerting-2027-01-15.new").write_bytes(b"a part of a copy" * 500)
    with opened(tmp_path) as database:
        commit(database, kept="1")
        database.back_up(NOW)
    with closing(sqlite3.connect(tmp_path / "backup" / "alerting-2027-01-15.sqlite3")) as copy:
        assert copy.execute("SELECT value FROM fact WHERE name = 'kept'").fetchone() == ("1",)


def test_a_copy_is_one_file_that_can_be_read_from_a_medium_without_writing(tmp_path: Path) -> None:
    with opened(tmp_path) as database:
        commit(database)
        database.back_up(NOW)
    (copy,) = (tmp_path / "backup").iterdir()
    with closing(sqlite3.connect(f"file:{copy}?mode=ro", uri=True)) as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        assert db.execute("SELECT count(*) FROM fact").fetchone() == (1,)
    assert [path.name for path in (tmp_path / "backup").iterdir()] == [copy.name]


class Hasty(sqlite3.Connection):
    """A connection of an SQLite that was built to wait for the disk at checkpoints only."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.execute("PRAGMA synchronous = NORMAL")


def test_every_commit_waits_for_the_disk_however_sqlite_was_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **kwargs: real(*args, factory=Hasty, **kwargs))
    with opened(tmp_path) as database:
        assert database.writer.execute("PRAGMA synchronous").fetchone() == (2,)


def test_where_no_new_file_can_be_begun_nothing_goes_into_the_broken_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise sqlite3.OperationalError("unable to open database file")

    with opened(tmp_path) as database:
        commit(database)
        monkeypatch.setattr(sqlite3, "connect", fails)
        with pytest.raises(sqlite3.OperationalError):
            database.renew("for the test")
        monkeypatch.undo()
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            commit(database)


@pytest.mark.parametrize("folder", ["s", "100% ?#&mode=rwc"])
def test_a_broken_file_without_copies_gives_what_it_still_has(
    tmp_path: Path, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = sqlite3.connect

    def connect(name: Any, *args: Any, uri: bool = False, **kwargs: Any) -> sqlite3.Connection:
        """Open as an SQLite that was built without SQLITE_USE_URI."""
        return real(name if uri or not str(name).startswith("file:") else f"./{name}", *args, uri=uri, **kwargs)

    monkeypatch.setattr(sqlite3, "connect", connect)
    with opened(tmp_path / folder) as database:
        commit(database, **SURROUNDINGS, other="4")
        damage(database, "audit")
    with opened(tmp_path / folder) as database:
        assert database.loss is not None
        assert database.loss.facts == SURROUNDINGS
        assert database.writer.execute("SELECT count(*) FROM fact").fetchone() == (0,)


def test_all_of_a_broken_file_is_set_aside_also_while_somebody_looks_at_it(tmp_path: Path) -> None:
    """Its WAL and the WAL's index stay where they are then: a new file must not find them."""
    with opened(tmp_path) as database:
        commit(database, kept="1")
        endings = ("", "-wal", "-shm")
        before = [Path(f"{database.path}{ending}").stat().st_ino for ending in endings]
        with closing(sqlite3.connect(database.path)) as beside:
            beside.execute("SELECT * FROM fact").fetchall()
            database.renew("for the test")
            (kept,) = tmp_path.glob("*Z")
            assert [Path(f"{kept}{ending}").stat().st_ino for ending in endings] == before
            assert beside.execute("SELECT value FROM fact WHERE name = 'kept'").fetchone() == ("1",)
        assert database.writer.execute("SELECT * FROM fact").fetchall() == []


def test_a_file_is_probed_by_a_change_and_says_where_it_is(tmp_path: Path) -> None:
    with opened(tmp_path) as database:
        assert database.probe() is False, "else nothing would be written to find out"
        assert database.folder == tmp_path
