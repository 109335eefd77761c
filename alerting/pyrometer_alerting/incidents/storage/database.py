"""The SQLite file as a file: opened and checked, counted, set aside when it is broken, and copied every day.

Every commit has a number, in the file and in `commits` beside it. A file with a lower number than that lacks commits
that were made: its WAL was removed or damaged, or an old copy was put in its place. SQLite takes such a file for whole.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
import struct
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import IO
from urllib.parse import quote

from pyrometer_alerting.incidents.storage.engine import Engine, Loss, StoreError, reason
from pyrometer_alerting.incidents.storage.schema import INDEXES, MIGRATIONS, SCHEMA, SCHEMA_VERSION

KEPT_BACKUPS = 7
KEPT_BROKEN = 3
COMMITS_FACT = "commits"
# A new file takes these over, since nobody else knows them: whose alerts are ours, and the channels' ids.
_SURROUNDINGS = ("receiver:", "heard:", "channel:", "watchdog:")
_NUMBER = struct.Struct("<Q")
_BROKEN_CODES = (11, 26)  # SQLITE_CORRUPT, SQLITE_NOTADB


class BrokenFileError(sqlite3.DatabaseError):
    """The file is not, or no longer, the one that was written."""


class Database(Engine):
    """The connections to one file: `writer` for the one who changes it, `reader` beside it."""

    writer: sqlite3.Connection
    reader: sqlite3.Connection
    errors = (OSError, sqlite3.Error)
    _inode: int
    _changes: int

    def __init__(self, folder: Path, *, alone: bool) -> None:
        self.path, self._folder, self._alone = folder / "alerting.sqlite3", folder, alone
        self.name = str(self.path)
        self._owner: IO[str] | None = None
        self._commits: int | None = None

    @property
    def folder(self) -> Path:
        """See `Engine.folder`."""
        return self._folder

    def begin(self, *, aside: bool = False) -> sqlite3.Connection:  # noqa: ARG002 - the file's lock is all there is
        """See `Engine.begin`; isolation is explicit, as the connection begins nothing on its own."""
        self.check_place()
        self.writer.execute("BEGIN IMMEDIATE")
        self._changes = self.writer.total_changes
        return self.writer

    def commit(self) -> None:
        """See `Engine.commit`; a change that changed nothing gets no number."""
        number = self.count(self.writer) if self.writer.total_changes != self._changes else None
        self.writer.execute("COMMIT")
        if number is not None:
            self.note(number)

    def rollback(self) -> None:
        """See `Engine.rollback`."""
        with suppress(sqlite3.Error):  # closed: a worker was still busy when the service ended
            if self.writer.in_transaction:  # a full disk has rolled it back already
                self.writer.execute("ROLLBACK")

    def view(self) -> sqlite3.Connection:
        """See `Engine.view`."""
        self.reader.execute("BEGIN")
        return self.reader

    def end_view(self) -> None:
        """See `Engine.end_view`."""
        self.reader.execute("ROLLBACK")

    def shrink(self) -> None:
        """See `Engine.shrink`."""
        self.writer.executescript("PRAGMA incremental_vacuum")  # `execute` would free a single page
        self.writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def is_broken(self, error: Exception) -> bool:
        """See `Engine.is_broken`."""
        return is_broken(error)

    def open(self) -> None:
        """Open, check and upgrade the file; begin a new one in the place of one that is broken.

        Raises:
            StoreError: the folder is in use.
            OSError, sqlite3.Error: the file cannot be opened or upgraded.
        """
        if self._alone:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._owner = _own(self._folder / "lock")
        elif not self.path.is_file():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        try:
            self._commits = os.open(self._folder / "commits", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                self._connect()
            except sqlite3.DatabaseError as error:
                if not (self._alone and is_broken(error)):
                    raise
                self.renew(reason(error))
            else:
                self._check_number()
        except BaseException:
            self.close()
            raise

    def renew(self, why: str) -> None:
        """Set the broken file aside and begin a new one.

        Raises:
            OSError, sqlite3.Error: the disk refuses it.
        """
        self._disconnect()
        since = _last_write(self.path)
        kept = self._set_aside()
        facts = _surroundings(kept) or next(filter(None, map(_surroundings, self._backups())), {})
        self._connect()
        where = f"it is kept as {kept.name}" if kept.exists() else "nothing of it could be kept"
        self.loss = Loss(f"the database was broken ({why})", where, since, facts)

    def check_place(self) -> None:
        """Raise BrokenFileError if the open file was removed or replaced: what is written to it would be lost."""
        try:
            there = self.path.stat().st_ino == self._inode
        except FileNotFoundError:
            there = False
        if not there and self._alone:
            raise BrokenFileError("the file was removed while in use")

    def check(self) -> None:
        """Raise BrokenFileError for a damage that the pages in the connections' memory hide."""
        with closing(sqlite3.connect(self.path, timeout=5.0)) as db:
            _check(db)

    def count(self, db: sqlite3.Connection) -> int:
        """Give the commit that is about to be made its number, and return it."""
        number = max(_number_in(db), 0) + 1
        db.execute("INSERT OR REPLACE INTO fact VALUES (?, ?)", (COMMITS_FACT, str(number)))
        return number

    def note(self, number: int) -> None:
        """Remember the number beside the file; after a power cut it may be too low, which harms nothing."""
        if self._commits is not None:
            with suppress(OSError):
                os.pwrite(self._commits, _NUMBER.pack(number), 0)

    def back_up(self, now: float) -> None:
        """See `Store.back_up`.

        Raises:
            OSError, sqlite3.Error: it failed; the copies that were there are.
        """
        folder = self._folder / "backup"
        path = folder / time.strftime("alerting-%Y-%m-%d.sqlite3", time.gmtime(now))
        if path.exists():
            return
        folder.mkdir(mode=0o700, exist_ok=True)
        new = path.with_suffix(".new")
        new.unlink(missing_ok=True)
        with closing(sqlite3.connect(self.path, timeout=5.0)) as source, closing(sqlite3.connect(new)) as target:
            source.backup(target)
            target.execute("PRAGMA journal_mode = DELETE")
            _check(target)
        new.chmod(0o600)
        with new.open("rb") as file:
            os.fsync(file.fileno())
        new.replace(path)
        for old in self._backups()[KEPT_BACKUPS:]:
            old.unlink(missing_ok=True)

    def backed_up_at(self) -> float | None:
        """See `Store.backed_up_at`."""
        return next((path.stat().st_mtime for path in self._backups()), None)

    def close(self) -> None:
        """Close everything, and let others use the folder."""
        self._disconnect()
        if self._commits is not None:
            os.close(self._commits)
            self._commits = None
        if self._owner is not None:
            self._owner.close()

    def _connect(self) -> None:
        # isolation_level=None: transactions are started explicitly, with BEGIN IMMEDIATE.
        self.writer = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=5.0)
        db = self.writer
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version > SCHEMA_VERSION:
            raise sqlite3.DatabaseError(f"written by another version (schema {version}, this is {SCHEMA_VERSION})")
        if self._alone:
            _check(db)
        if version != SCHEMA_VERSION:
            db.execute("PRAGMA auto_vacuum = INCREMENTAL")
            db.execute("VACUUM")  # this turns it on for an existing file
        # One transaction: a crash in the middle leaves the old schema intact.
        upgrade = "".join(MIGRATIONS[version - 1 :]) if version else ""
        db.executescript(
            f"BEGIN IMMEDIATE; {SCHEMA} {upgrade} {INDEXES} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
        )
        self.path.chmod(0o600)
        self._inode = self.path.stat().st_ino
        self.reader = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=5.0)
        self.reader.execute("PRAGMA query_only = ON")

    def _check_number(self) -> None:
        """Note a loss where commits that were made are not in the file."""
        if not self._alone:
            return
        noted, found = self._noted(), _number_in(self.writer)
        if found >= noted:
            return
        missing = noted - max(found, 0)
        what = "its newest changes are missing" if found > 0 else "it is empty"
        facts = {} if found > 0 else next(filter(None, map(_surroundings, self._backups())), {})
        since = _last_write(self.path) if found > 0 else 0.0
        self.loss = Loss(
            f"the database has changed since it was last used: {what} ({missing} commits)", "", since, facts
        )

    def _noted(self) -> int:
        content = b"" if self._commits is None else os.pread(self._commits, _NUMBER.size, 0)
        return int(_NUMBER.unpack(content)[0]) if len(content) == _NUMBER.size else 0

    def _set_aside(self) -> Path:
        """Rename the file with its WAL; the oldest that were set aside are removed."""
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        kept = self.path.with_name(f"{self.path.name}.broken-{stamp}")
        for ending in ("", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                Path(f"{self.path}{ending}").rename(f"{kept}{ending}")
        stamps = sorted({path.name.split("-")[1] for path in self._folder.glob(f"{self.path.name}.broken-*")})
        for old in stamps[:-KEPT_BROKEN]:
            for path in self._folder.glob(f"{self.path.name}.broken-{old}*"):
                path.unlink(missing_ok=True)
        return kept

    def _backups(self) -> list[Path]:
        """Return the copies, the newest first."""
        return sorted((self._folder / "backup").glob("alerting-*.sqlite3"), reverse=True)

    def _disconnect(self) -> None:
        for name in ("reader", "writer"):
            with suppress(AttributeError, sqlite3.Error):
                getattr(self, name).close()


def is_broken(error: Exception) -> bool:
    """Return whether SQLite says that this is no database, or a damaged one, rather than that it is busy or full."""
    if isinstance(error, BrokenFileError):
        return True
    code = getattr(error, "sqlite_errorcode", None)  # since Python 3.11
    if code is not None:
        return code & 0xFF in _BROKEN_CODES
    return isinstance(error, sqlite3.DatabaseError) and any(
        words in str(error) for words in ("malformed", "is not a database")
    )


def _check(db: sqlite3.Connection) -> None:
    found = db.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if found != "ok":
        raise BrokenFileError(" ".join(str(found).split()))


def _number_in(db: sqlite3.Connection) -> int:
    """Return the number of the newest commit; 0 for a file without one."""
    row = db.execute("SELECT value FROM fact WHERE name = ?", (COMMITS_FACT,)).fetchone()
    return int(row[0]) if row is not None else 0


def _last_write(path: Path) -> float:
    """Return when the file or its WAL was last written; now where neither is there."""
    times = []
    for name in (path, Path(f"{path}-wal")):
        with suppress(OSError):
            times.append(name.stat().st_mtime)
    return max(times, default=time.time())


def _surroundings(path: Path) -> dict[str, str]:
    """Return the facts that can still be read in a broken or old file; none where it is too damaged."""
    if not path.is_file():
        return {}
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as db:
            rows = db.execute("SELECT name, value FROM fact").fetchall()
    except sqlite3.Error:
        return {}
    return {str(name): str(value) for name, value in rows if str(name).startswith(_SURROUNDINGS)}


def _own(path: Path) -> IO[str]:
    """Lock the folder for this process and return the open lock file; the kernel releases it with the process."""
    file = path.open("a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise StoreError(f"{path.parent}: another pyrometer-alerting uses this folder") from None
    return file
