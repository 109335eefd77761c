"""Who leads: whoever holds an advisory lock of PostgreSQL in a session of its own, and proves it every second.

The server ends a session that is silent for 5 s, so a leader that is paused or cut off loses the lock on its own; one
that could not write for 4 s does not lead any more, a second before anybody else can. Its last changes are refused by
their epoch, which each new leader raises.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time

import psycopg  # pyright: ignore[reportMissingImports] - an optional dependency

from pyrometer_alerting.incidents.storage.engine import Loss, StoreError, reason
from pyrometer_alerting.incidents.storage.postgresql import LEASE_SECONDS, SERVER_SECONDS, Server, Session, make_tables

LEADER_LOCK = 0x5079726F0002
# End the sessions of a leader that was paused: PostgreSQL has been seen to leave one open past its own time limit.
_END_FORGOTTEN = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE datname = current_database() AND usename = current_user AND application_name = current_setting('application_name')
    AND state LIKE 'idle in transaction%' AND state_change < now() - make_interval(secs => ?)
"""
_LOCK_SECONDS = 2.0  # one that waits longer to lead tries again, and ends what has been forgotten meanwhile
BEAT_SECONDS = 1.0
TRY_SECONDS = 0.5
WENT_BACK = "the database is older than it was: a copy was put back, or a standby that lagged was promoted"
BEING_RESTORED = "the database has lost the leader's last beat: is it being restored?"
_log = logging.getLogger(__name__)


class Leadership:
    """Runs in its own thread; `epoch` and `leads` may be asked from any."""

    def __init__(self, server: Server) -> None:
        self._session = _LockSession(server)
        self._confirmed = float("-inf")
        self._stopping = threading.Event()
        self.epoch: int | None = None
        """The number of this term; None while another process leads."""
        self.trouble = ""
        """Why the server could not be asked; empty while it answers."""
        self.loss: Loss | None = None
        """Noted when the database is older than this process knew it, until the channel is to be told."""
        self._seen = 0.0

    def leads(self) -> bool:
        """Return whether nobody else can lead now."""
        return self.epoch is not None and _now() - self._confirmed < LEASE_SECONDS

    def run(self) -> None:
        """Try to lead, and go on leading, until stopped."""
        while not self._stopping.is_set():
            try:
                self.step()
                self.trouble = ""
            except (psycopg.Error, OSError, StoreError) as error:
                self._lost(reason(error))
            self._stopping.wait(TRY_SECONDS if self.epoch is None else BEAT_SECONDS)
        self._session.disconnect()
        self.epoch = None

    def step(self) -> None:
        """Take the lock where it is free, or write that it is held.

        Raises:
            psycopg.Error, StoreError: the server does not let us, or has another database than before.
        """
        started = _now()
        if self.epoch is None:
            self._session.open()
            (taken,) = self._session.execute("SELECT pg_try_advisory_lock(?)", (LEADER_LOCK,)).fetchone()
            if not taken:
                self._watch()
                return
            self._session.execute(_END_FORGOTTEN, (SERVER_SECONDS,))
            make_tables(self._session)
            # Waits for a change that the last leader has open, until the server ends that one.
            rows = self._session.execute(
                "UPDATE leader SET epoch = epoch + 1, since = ? WHERE id = 1 RETURNING epoch", (time.time(),)
            )
            (epoch,) = rows.fetchone()
            self._session.execute("SET lock_timeout = 0")  # who leads goes on, or is cut off by `check`
            self._compare()
            self._confirmed = started
            self.epoch = int(epoch)
            _log.info("this replica is the leader, term %d", self.epoch)
        else:
            self._beat()
            self._confirmed = started

    def _beat(self) -> None:
        """Write the time; it never goes back in one database, whatever the clock does, and nobody else writes it."""
        now = time.time()
        rows = self._session.execute(
            "UPDATE beat SET at = CASE WHEN at < ? THEN ? ELSE at + 0.001 END WHERE id = 1 AND at = ? RETURNING at",
            (now, now, self._seen),
        )
        row = rows.fetchone()
        if row is None:
            raise StoreError(WENT_BACK)
        self._seen = row[0]

    def _watch(self) -> None:
        """Remember the latest time that a leader has written, to know an older database by it.

        Keep it when the database shows an earlier one: this process may lead next, and has to report that.
        """
        with contextlib.suppress(psycopg.errors.UndefinedTable):
            self._seen = max(self._seen, self._last_beat())

    def _compare(self) -> None:
        found = self._last_beat()
        if found < self._seen:
            self.loss = Loss(WENT_BACK, "", min(found, time.time()))
        self._seen = found

    def _last_beat(self) -> float:
        row = self._session.execute("SELECT at FROM beat WHERE id = 1").fetchone()
        if row is None:
            raise StoreError(BEING_RESTORED)
        return float(row[0])

    def check(self) -> None:
        """Cut a session that hangs, so that `run` notices."""
        if self.epoch is not None and not self.leads():
            self._session.sever()
        self._session.sever_if_stuck()

    def stop(self) -> None:
        """Let `run` give up the lock and return."""
        self._stopping.set()

    def _lost(self, why: str) -> None:
        if self.epoch is not None:
            _log.warning("this replica is no longer the leader: %s", why)
        elif why != self.trouble:
            _log.error("%s", why)
        self.epoch, self.trouble = None, why
        with contextlib.suppress(psycopg.Error, OSError):
            self._session.disconnect()


class _LockSession(Session):
    """The session with the lock: the server ends it where it is silent."""

    def open(self) -> Session:
        """Connect where that is needed."""
        if self._db is None or self._db.closed:
            silence = int(SERVER_SECONDS * 1000)
            # Both: a process that is paused while it makes the tables is in a transaction.
            self._db = self._server.connect(
                f"idle_session_timeout = {silence}",
                f"idle_in_transaction_session_timeout = {silence}",
                f"lock_timeout = {int(_LOCK_SECONDS * 1000)}",
            )
        return self


def _now() -> float:
    """Return seconds that go on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
