"""What survives a crash: incidents, what each alert last said, and the outbox, in one SQLite file.

WAL with synchronous=FULL: a commit is on the disk when it returns, so Alertmanager may be answered (measured: 0.16 ms
for one alert, 12 ms for a thousand). One connection and one lock: there is a single writer by construction. A second
process is refused: two would each deliver the same message.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO

from pyrometer_alerting.model.incident import SEVERITIES, Alert, Incident, from_json, to_json
from pyrometer_alerting.state.outbox import Outbox

SCHEMA_VERSION = 2
KEPT_RESOLVED_SECONDS = 14 * 24 * 3600.0
MAX_LISTED = 200

_SCHEMA = """
CREATE TABLE IF NOT EXISTS delivery (group_key TEXT PRIMARY KEY, digest TEXT NOT NULL, seen_at REAL NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS alert (
    fingerprint TEXT PRIMARY KEY, firing INTEGER NOT NULL, starts_at REAL NOT NULL, ends_at REAL,
    incident_id TEXT, seen_at REAL NOT NULL, parked_alerts TEXT
) STRICT;
CREATE TABLE IF NOT EXISTS incident (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, key TEXT NOT NULL, firing INTEGER NOT NULL,
    changed_at REAL NOT NULL, document TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS incident_key (key TEXT PRIMARY KEY, incident_id TEXT NOT NULL) STRICT;
CREATE INDEX IF NOT EXISTS alert_by_incident ON alert (incident_id);
CREATE INDEX IF NOT EXISTS incident_firing ON incident (firing);
CREATE TABLE IF NOT EXISTS outbox (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, op_id TEXT NOT NULL UNIQUE, incident_id TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('root', 'reply')),
    state TEXT NOT NULL CHECK (state IN ('ready', 'sending', 'lookup', 'done', 'dead')),
    since REAL NOT NULL, not_before REAL NOT NULL, wanted INTEGER NOT NULL, sent INTEGER NOT NULL,
    attempts INTEGER NOT NULL, lookups INTEGER NOT NULL, sent_at REAL, posted_at REAL, degrade INTEGER NOT NULL,
    channel TEXT, ts TEXT, shown TEXT, body TEXT, error TEXT, target TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX IF NOT EXISTS outbox_by_incident ON outbox (incident_id, kind, seq);
CREATE INDEX IF NOT EXISTS outbox_open ON outbox (state, not_before);
CREATE TABLE IF NOT EXISTS sweep (
    op_id TEXT PRIMARY KEY, channel TEXT NOT NULL, ts TEXT NOT NULL, thread TEXT, oldest REAL NOT NULL,
    due REAL NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS audit (
    at REAL NOT NULL, user TEXT NOT NULL, action TEXT NOT NULL, incident_id TEXT NOT NULL, detail TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS fact (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
"""

# From schema 1 (release 0.1.0): one incident had one key.
_FROM_1 = """
ALTER TABLE alert ADD COLUMN parked_alerts TEXT;
ALTER TABLE outbox ADD COLUMN target TEXT NOT NULL DEFAULT '';
INSERT OR REPLACE INTO incident_key SELECT key, id FROM incident ORDER BY number;
DROP INDEX incident_by_key;
"""


class StoreError(Exception):
    """The store cannot take or give anything now; the message names the file."""


class Transaction:
    """Everything that can be done to the store, inside one transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection
        self.outbox = Outbox(connection)

    def is_repeated(self, group: str, digest: str, now: float) -> bool:
        """Whether the last delivery of this group said the same; remembers this one."""
        row = self._db.execute("SELECT digest FROM delivery WHERE group_key = ?", (group,)).fetchone()
        self._db.execute("INSERT OR REPLACE INTO delivery VALUES (?, ?, ?)", (group, digest, now))
        return row is not None and row[0] == digest

    def forget_deliveries(self) -> None:
        """The next delivery of any group is news, whatever it says."""
        self._db.execute("DELETE FROM delivery")

    def known_alert(self, fingerprint: str) -> tuple[Alert | None, float]:
        """What this alert last said (without its labels), and when."""
        row = self._db.execute(
            "SELECT firing, starts_at, ends_at, seen_at FROM alert WHERE fingerprint = ?", (fingerprint,)
        ).fetchone()
        return (None, 0.0) if row is None else (Alert(fingerprint, bool(row[0]), {}, {}, row[1], row[2]), row[3])

    def save_alert(self, alert: Alert, incident_id: str | None, now: float) -> None:
        """Remember what this alert says now."""
        self._db.execute(
            "INSERT OR REPLACE INTO alert (fingerprint, firing, starts_at, ends_at, incident_id, seen_at)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (alert.fingerprint, int(alert.firing), alert.starts_at, alert.ends_at, incident_id, now),
        )

    def park_alert(self, alert: Alert) -> None:
        """Keep a firing that looks like an old story, until somebody who knows has been asked."""
        self._db.execute(
            "UPDATE alert SET parked_alerts = ? WHERE fingerprint = ?", (json.dumps(asdict(alert)), alert.fingerprint)
        )

    def parked_alerts(self) -> list[tuple[Alert, float]]:
        """What is parked_alerts, each with when the end that it contradicts was heard."""
        rows = self._db.execute("SELECT parked_alerts, seen_at FROM alert WHERE parked_alerts IS NOT NULL")
        return [(Alert(**json.loads(row[0])), row[1]) for row in rows]

    def release_alert(self, fingerprint: str) -> None:
        """The doubt is settled, one way or the other."""
        self._db.execute("UPDATE alert SET parked_alerts = NULL WHERE fingerprint = ?", (fingerprint,))

    def latest_incident(self, key: str) -> Incident | None:
        """The newest incident of this key, or the one that it was joined into."""
        row = self._db.execute(
            "SELECT document FROM incident WHERE id = (SELECT incident_id FROM incident_key WHERE key = ?)", (key,)
        ).fetchone()
        return None if row is None else from_json(row[0])

    def id_of_key(self, key: str) -> str | None:
        """The id of what `latest_incident` would read: of a storm that is a megabyte, and its keys are thousands."""
        row = self._db.execute("SELECT incident_id FROM incident_key WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def incident_of_alert(self, fingerprint: str) -> str | None:
        """The id of the firing incident that this alert is a member of."""
        row = self._db.execute(
            "SELECT incident.id FROM alert JOIN incident ON incident.id = alert.incident_id"
            " WHERE fingerprint = ? AND incident.firing = 1",
            (fingerprint,),
        ).fetchone()
        return None if row is None else str(row[0])

    def move_alerts(self, source: str, target: str) -> None:
        """The alerts of one incident belong to another from now on."""
        self._db.execute("UPDATE alert SET incident_id = ? WHERE incident_id = ?", (target, source))

    def move_alert(self, fingerprint: str, target: str) -> None:
        """One alert belongs to another incident from now on."""
        self._db.execute("UPDATE alert SET incident_id = ? WHERE fingerprint = ?", (target, fingerprint))

    def drop_incident(self, incident_id: str) -> None:
        """Forget an incident that nobody was told of."""
        self._db.execute("DELETE FROM outbox WHERE incident_id = ?", (incident_id,))
        self._db.execute("DELETE FROM incident WHERE id = ?", (incident_id,))

    def incident(self, incident_id: str) -> Incident | None:
        """The incident of this id."""
        row = self._db.execute("SELECT document FROM incident WHERE id = ?", (incident_id,)).fetchone()
        return None if row is None else from_json(row[0])

    def incidents(self, limit: int = MAX_LISTED) -> list[Incident]:
        """What fires, then what is over, each newest first."""
        rows = self._db.execute("SELECT document FROM incident ORDER BY firing DESC, number DESC LIMIT ?", (limit,))
        return [from_json(row[0]) for row in rows]

    def recent_incidents(self, since: float) -> list[Incident]:
        """Incidents that fire now or changed since then, newest first; not those that became part of another."""
        rows = self._db.execute(
            "SELECT document FROM incident WHERE firing = 1 OR changed_at >= ? ORDER BY number DESC", (since,)
        )
        return [found for found in (from_json(row[0]) for row in rows) if not found.joined_into]

    def pointers(self, incident_id: str) -> list[Incident]:
        """Incidents with a message of their own that became part of this one."""
        found = "SELECT document FROM incident WHERE json_extract(document, '$.joined_into') = ?"
        return [from_json(row[0]) for row in self._db.execute(found, (incident_id,))]

    def firing_count(self) -> dict[str, int]:
        """How many incidents fire, by severity."""
        counts = dict.fromkeys(SEVERITIES, 0)
        for incident in self.recent_incidents(float("inf")):
            counts[incident.severity] += 1
        return counts

    def save_incident(self, incident: Incident, now: float) -> None:
        """Insert or replace; a new incident gets the next number."""
        self._db.execute(
            "INSERT INTO incident (id, key, firing, changed_at, document) VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT (id) DO UPDATE SET firing = excluded.firing, changed_at = excluded.changed_at,"
            " document = excluded.document",
            (incident.id, incident.key, int(incident.firing), now, to_json(incident)),
        )
        if not incident.joined_into:
            keys = [(key, incident.id) for key in (incident.key, *incident.keys)]
            self._db.executemany("INSERT OR REPLACE INTO incident_key VALUES (?, ?)", keys)

    def forget_key(self, key: str) -> None:
        """The next alert of this key begins an incident of its own."""
        self._db.execute("DELETE FROM incident_key WHERE key = ?", (key,))

    def fact(self, name: str) -> str | None:
        """A remembered single value: channel ids, when the Watchdog was last seen."""
        row = self._db.execute("SELECT value FROM fact WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def facts(self, prefix: str) -> dict[str, str]:
        """All remembered values whose names begin so, by the rest of their names."""
        rows = self._db.execute("SELECT name, value FROM fact WHERE substr(name, 1, ?) = ?", (len(prefix), prefix))
        return {str(name)[len(prefix) :]: str(value) for name, value in rows}

    def save_fact(self, name: str, value: str) -> None:
        """Remember a single value."""
        self._db.execute("INSERT OR REPLACE INTO fact VALUES (?, ?)", (name, value))

    def audit(self, at: float, user: str, action: str, incident_id: str, detail: str) -> None:
        """Write down who did what."""
        self._db.execute("INSERT INTO audit VALUES (?, ?, ?, ?, ?)", (at, user, action, incident_id, detail))

    def audits(self, limit: int = MAX_LISTED) -> list[tuple[float, str, str, str, str]]:
        """(when, who, what, incident, detail), newest first."""
        return list(self._db.execute("SELECT * FROM audit ORDER BY at DESC LIMIT ?", (limit,)))

    def forget_fact(self, name: str) -> None:
        """Forget a single value."""
        self._db.execute("DELETE FROM fact WHERE name = ?", (name,))

    def forget(self, before: float) -> None:
        """Drop what was resolved and said before that time, so that the file stays small."""
        old = "SELECT id FROM incident WHERE firing = 0 AND changed_at < ?"
        self._db.execute(f"DELETE FROM outbox WHERE state IN ('done', 'dead') AND incident_id IN ({old})", (before,))  # noqa: S608 - constant
        self._db.execute(
            "DELETE FROM incident WHERE firing = 0 AND changed_at < ? AND id NOT IN (SELECT incident_id FROM outbox)",
            (before,),
        )
        self._db.execute(
            "DELETE FROM outbox WHERE kind = 'root' AND body IS NOT NULL AND state = 'done' AND since < ?", (before,)
        )
        self._db.execute("DELETE FROM alert WHERE firing = 0 AND seen_at < ?", (before,))
        self._db.execute("DELETE FROM delivery WHERE seen_at < ?", (before,))
        self._db.execute("DELETE FROM incident_key WHERE incident_id NOT IN (SELECT id FROM incident)")
        self._db.execute("DELETE FROM audit WHERE at < ?", (before,))


class Store:
    """The file. Raises StoreError with one line naming it whenever SQLite or the disk says no."""

    def __init__(self, folder: Path, *, alone: bool = True) -> None:
        """`alone` takes the folder for this process; a command that only changes a row works beside the service."""
        self._path = folder / "alerting.sqlite3"
        self._lock = threading.RLock()
        self._owner: IO[str] | None = None
        try:
            if alone:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._owner = _own(folder / "lock")
            elif not self._path.is_file():
                raise FileNotFoundError(errno.ENOENT, "")
            # isolation_level=None: transactions are started by us, with BEGIN IMMEDIATE.
            self._db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False, timeout=5.0)
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"{self._path}: {_reason(error)}") from None
        try:
            self._prepare()
        except (OSError, sqlite3.Error) as error:
            self.close()
            raise StoreError(f"{self._path}: {_reason(error)}") from None

    def _prepare(self) -> None:
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version not in (0, 1, SCHEMA_VERSION):
            raise sqlite3.DatabaseError(f"written by another version (schema {version}, this is {SCHEMA_VERSION})")
        if version != SCHEMA_VERSION:
            self._db.execute("PRAGMA auto_vacuum = INCREMENTAL")
            self._db.execute("VACUUM")  # what turns it on for a file that exists
        # One transaction: a crash in the middle leaves the old schema, whole.
        upgrade = _FROM_1 if version == 1 else ""
        self._db.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} {upgrade} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;")
        self._path.chmod(0o600)

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """One atomic change: on disk when the block ends, undone when it raises."""
        with self._lock:
            try:
                self._db.execute("BEGIN IMMEDIATE")
                try:
                    yield Transaction(self._db)
                except BaseException:
                    self._db.execute("ROLLBACK")
                    raise
                self._db.execute("COMMIT")
            except sqlite3.Error as error:
                with suppress(sqlite3.ProgrammingError):  # closed: a worker that was busy when the service ended
                    if self._db.in_transaction:
                        self._db.execute("ROLLBACK")
                raise StoreError(f"{self._path}: {_reason(error)}") from error

    def shrink(self) -> None:
        """Give the space of what was forgotten back to the disk."""
        with self._lock:
            try:
                self._db.executescript("PRAGMA incremental_vacuum")  # execute would free a single page
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            except sqlite3.Error as error:
                raise StoreError(f"{self._path}: {_reason(error)}") from error

    def close(self) -> None:
        """Close the file; what was committed is safe."""
        with self._lock:
            self._db.close()
            if self._owner is not None:
                self._owner.close()


def _own(path: Path) -> IO[str]:
    """An open file that holds the folder for this process; the kernel lets go of it however the process ends."""
    file = path.open("a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise StoreError(f"{path.parent}: another pyrometer-alerting uses this folder") from None
    return file


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno)
    return str(error)
