"""The file under the store: names that a later release looks for, numbers of commits, copies that are whole."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from pyrometer_alerting.state.database import BrokenFileError, Database, is_broken

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


def emptied(folder: Path) -> None:
    """Take away all facts but not the file, as an old copy from before the first commit would."""
    with closing(sqlite3.connect(folder / "alerting.sqlite3")) as db:
        db.execute("DELETE FROM fact")
        db.commit()


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
        assert database.loss.why == f"the database is not as it was left: it is empty ({commits} commits)"
        assert database.loss.facts == SURROUNDINGS
        assert database.loss.since == 0.0


def test_a_file_with_one_commit_of_three_lacks_the_newest_and_keeps_its_own_facts(tmp_path: Path) -> None:
    with opened(tmp_path) as database:
        commit(database)
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
