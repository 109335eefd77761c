"""Check whether anything can be written, for readiness and a metric."""

from __future__ import annotations

import threading

from pyrometer_alerting.incidents.deliveries import Deliveries
from pyrometer_alerting.incidents.storage.store import Store, StoreError
from pyrometer_kit.clock import Clock

EVERY_SECONDS = 5.0  # each check is a commit on disk, and anyone may request one


class Readiness:
    """Writes to the store periodically and remembers the outcome."""

    def __init__(self, store: Store, deliveries: Deliveries, clock: Clock) -> None:
        self._store, self._deliveries, self._clock = store, deliveries, clock
        self._lock = threading.Lock()
        self._checked_at = float("-inf")
        self._error: StoreError | None = None

    @property
    def writable(self) -> bool:
        """True if the store can be written now."""
        try:
            self.check()
        except StoreError:
            return False
        return True

    def check(self) -> None:
        """Write something, unless that was tried a few seconds ago.

        Raises:
            StoreError: nothing can be written.
        """
        with self._lock:
            now = self._clock.monotonic()
            if now - self._checked_at >= EVERY_SECONDS:
                self._checked_at, self._error = now, self._probe()
            if self._error is not None:
                raise self._error
            if self._deliveries.stuck:  # the disk may have space for a word but not for a delivery
                raise StoreError(self._deliveries.stuck)

    def _probe(self) -> StoreError | None:
        try:
            self._store.probe(self._clock.wall())
        except StoreError as error:
            return error
        return None
