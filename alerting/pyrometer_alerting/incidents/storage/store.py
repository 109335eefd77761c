"""The database that survives a crash: incidents, the last state of each alert, and the outbox.

A SQLite file: WAL with synchronous=FULL, so a commit is on the disk when it returns. One connection and one lock make a
single writer by construction; pages read beside it. A second process is refused: both would deliver each message. Or
PostgreSQL, which several processes share: the leader changes it, and what each of them may add is in the inbox.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyrometer_alerting.incidents.storage.database import Database
from pyrometer_alerting.incidents.storage.engine import Engine, NotLeadingError, StoreError, reason
from pyrometer_alerting.incidents.storage.transaction import Transaction

__all__ = ["NotLeadingError", "Store", "StoreError", "Transaction"]

_log = logging.getLogger(__name__)

KEPT_RESOLVED_SECONDS = 14 * 24 * 3600.0
PROBE_SECONDS = 0.1  # metrics and readiness must not wait for a large delivery
LOST_FACT = "lost"  # what may be missing in this file, until the channel was told
REFILL_FACT = "refill"  # as long as Alertmanager was not asked for all that fires


class Store:
    """The database; every method raises StoreError with one line naming it when its engine or the disk fails.

    A file that turns out to be broken is set aside and a new one begun: the change under way is lost with a StoreError,
    the next one finds the new file.
    """

    def __init__(self, where: Path | Engine, *, alone: bool = True) -> None:
        """Open or create the file in this folder, or another engine's database.

        `alone` locks the folder for this process; a command that only changes a row works beside the service.

        Raises:
            StoreError: the folder is in use, or the database cannot be opened or upgraded.
        """
        self.outlets: tuple[str, ...] = ()
        """Names of the outlets besides Slack, which are requested to report each change."""
        self._lock, self._read_lock = threading.RLock(), threading.RLock()
        self._database: Engine = Database(where, alone=alone) if isinstance(where, Path) else where
        self._alone = alone
        with self._failing():
            self._database.open()
        self.save_loss()

    @property
    def engine(self) -> Engine:
        """The engine of the database."""
        return self._database

    @property
    def folder(self) -> Path:
        """Where files beside the database lie.

        Raises:
            StoreError: it is on a server.
        """
        if self._database.folder is None:
            raise StoreError(f"{self._database.name}: there is no folder")
        return self._database.folder

    def check_leading(self) -> None:
        """Make sure that nobody else changes anything now: before a call that cannot be undone.

        Raises:
            NotLeadingError: somebody else may lead by now.
        """
        if not self._database.leads():
            raise NotLeadingError(f"{self._database.name}: another replica is the leader")

    @contextmanager
    def transaction(self, *, aside: bool = False) -> Iterator[Transaction]:
        """Open one atomic change: on disk when the block ends, rolled back when it raises.

        `aside` lets a replica that does not lead make it, after whatever the leader has under way.

        Raises:
            StoreError: the engine or the disk failed; NotLeadingError where another replica is the leader.
        """
        with self._lock, self._failing(renew=True):
            try:
                yield Transaction(self._database.begin(aside=aside or not self._alone), self.outlets)
                self._database.commit()
            except BaseException:
                self._database.rollback()
                raise

    @contextmanager
    def snapshot(self) -> Iterator[Transaction]:
        """Open a view of what is committed, for reading, that waits for no change under way.

        Raises:
            StoreError: SQLite or the disk failed.
        """
        with self._read_lock, self._failing():
            db = self._database.view()
            try:
                yield Transaction(db)
            finally:
                self._database.end_view()

    def shrink(self) -> None:
        """Return freed space to the disk.

        Raises:
            StoreError: SQLite or the disk failed.
        """
        with self._lock, self._failing(renew=True):
            self._database.shrink()

    def check(self) -> None:
        """Read the whole file again; one that is broken is replaced, as by a change that meets it.

        Raises:
            StoreError: it was broken, or cannot be read.
        """
        with self._lock, self._failing(renew=True):
            self._database.check()

    def probe(self, now: float) -> None:
        """Write something, unless a change is under way, whose commit shows whether it can be written.

        Raises:
            StoreError: nothing can be written.
        """
        with self._failing():
            if self._database.probe():
                return
        if not self._lock.acquire(timeout=PROBE_SECONDS):
            return
        try:
            with self.transaction() as tx:
                tx.save_fact("probed_at", repr(now))
        finally:
            self._lock.release()

    def back_up(self, now: float) -> None:
        """Copy the file into the folder `backup` unless it has a copy of this day; keep the newest ones.

        Raises:
            StoreError: SQLite or the disk failed.
        """
        with self._failing():
            self._database.back_up(now)

    def backed_up_at(self) -> float | None:
        """Return when the newest copy was made; None without one."""
        return self._database.backed_up_at()

    def close(self) -> None:
        """Close the file; committed changes are safe."""
        if self._database.folder is None:  # a call under way may wait for a server for long: it fails
            self._database.close()
        with self._lock, self._read_lock:
            self._database.close()

    @contextmanager
    def _failing(self, *, renew: bool = False) -> Iterator[None]:
        """Turn errors into StoreError; with `renew` replace a file that is broken."""
        try:
            yield
        except StoreError:
            raise
        except self._database.errors as error:
            if renew and self._database.is_broken(error):
                self._renew(error)
            raise StoreError(f"{self._database.name}: {reason(error)}") from error

    def _renew(self, error: Exception) -> None:
        with self._read_lock:
            try:
                self._database.renew(reason(error))
            except self._database.errors as again:
                raise StoreError(f"{self._database.name}: {reason(again)}") from again
        self.save_loss()

    def save_loss(self) -> None:
        """Remember in the database what was lost until it is told, and what the old file knew of its surroundings.

        Raises:
            StoreError: it cannot be written now.
        """
        loss = self._database.loss
        if loss is None:
            return
        self._database.loss = None
        _log.error("%s: %s%s", self._database.name, loss.why, f"; {loss.kept}" if loss.kept else "")
        with self.transaction() as tx:
            for name, value in loss.facts.items():
                tx.save_fact(name, value)
            tx.save_fact(LOST_FACT, json.dumps({"why": loss.why, "kept": loss.kept, "since": loss.since}))
            tx.save_fact(REFILL_FACT, "due")
