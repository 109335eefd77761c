"""Run one delivery thread: recover what a crash left, then deliver step by step until stopped."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod

from pyrometer_alerting.channel.call_limits import Timing
from pyrometer_alerting.incidents.storage.store import StoreError

_log = logging.getLogger(__name__)


class DeliveryLoop(ABC):
    """Deliver operations of the outbox in a thread of its own; its log lines begin with `name`."""

    def __init__(self, name: str, timing: Timing) -> None:
        self._loop_name, self._timing = name, timing
        self._wake = threading.Event()
        self._stopped = False

    @abstractmethod
    def recover(self) -> None:
        """Retry or look up the operations that the last process was sending when it died."""

    @abstractmethod
    def step(self) -> float:
        """Process the oldest operation that is due; return the seconds until the next step."""

    def wake(self) -> None:
        """Check the outbox now."""
        self._wake.set()

    def stop(self) -> None:
        """Let `run` return after the call in progress."""
        self._stopped = True
        self._wake.set()

    def run(self) -> None:
        """Deliver until stopped."""
        recovered = False
        while not self._is_stopped():
            try:
                if not recovered:
                    self.recover()
                    recovered = True
                wait = self.step()
            except StoreError as error:
                # A call may have succeeded without its outcome being stored: treat it like a crash.
                _log.error("%s: %s", self._loop_name, error)
                recovered, wait = False, self._timing.backoff
            if wait > 0:
                self._wake.wait(wait)

    def _is_stopped(self) -> bool:
        """Return whether to stop; the event is cleared first, or a `stop` in between would be missed."""
        self._wake.clear()
        return self._stopped
