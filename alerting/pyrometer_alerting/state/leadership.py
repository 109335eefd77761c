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

from pyrometer_alerting.state.engine import StoreError, reason
from pyrometer_alerting.state.postgresql import LEASE_SECONDS, SERVER_SECONDS, Server, Session, make_tables

LEADER_LOCK = 0x5079726F0002
BEAT_SECONDS = 1.0
TRY_SECONDS = 0.5
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
        """Why the server could not be queried; empty while it answers."""

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
            psycopg.Error, StoreError: the server does not let us.
        """
        started = _now()
        if self.epoch is None:
            self._session.open()
            (taken,) = self._session.execute("SELECT pg_try_advisory_lock(?)", (LEADER_LOCK,)).fetchone()
            if not taken:
                return
            make_tables(self._session)
            # Waits for a change that the last leader has open, until the server ends that one.
            rows = self._session.execute(
                "UPDATE leader SET epoch = epoch + 1, since = ? WHERE id = 1 RETURNING epoch", (time.time(),)
            )
            (epoch,) = rows.fetchone()
            self._confirmed = started
            self.epoch = int(epoch)
            _log.info("this replica is the leader, term %d", self.epoch)
        else:
            self._session.execute("UPDATE beat SET at = ? WHERE id = 1", (time.time(),))
            self._confirmed = started

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
                f"idle_session_timeout = {silence}", f"idle_in_transaction_session_timeout = {silence}"
            )
        return self


def _now() -> float:
    """Return seconds that go on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
