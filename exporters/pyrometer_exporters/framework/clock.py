"""Time, behind a protocol, so that tests can set it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Where the exporters get their time from."""

    def wall(self) -> float:
        """Seconds since the epoch; can be set back by an operator or NTP."""

    def monotonic(self) -> float:
        """Seconds since some fixed moment; never goes back. CLOCK_MONOTONIC, shared with the training ranks."""


class SystemClock:
    """The machine's own clocks."""

    def wall(self) -> float:
        """See :class:`Clock`."""
        return time.time()

    monotonic = staticmethod(time.monotonic)  # itself: it is read hundreds of times a second
