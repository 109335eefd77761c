"""Time behind a protocol, so that tests can set it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """The source of time for everything that waits, expires or is stamped."""

    def wall(self) -> float:
        """Return seconds since the epoch; an operator or NTP can set them back."""
        ...

    def monotonic(self) -> float:
        """Return seconds since some fixed moment; they never go back. CLOCK_MONOTONIC, shared by all processes."""
        ...


class SystemClock:
    """The machine's own clocks."""

    wall = staticmethod(time.time)
    # The functions themselves: the exporters read them hundreds of times a second.
    monotonic = staticmethod(time.monotonic)


JUMP_SECONDS = 60.0
"""A wall clock that moves by more against the monotonic one was set, not corrected (or the machine slept)."""


class Jumps:
    """Notices that the wall clock was set."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._ahead = clock, clock.wall() - clock.monotonic()

    def happened(self) -> bool:
        """Return whether it was set since the last call."""
        before, self._ahead = self._ahead, self._clock.wall() - self._clock.monotonic()
        return abs(self._ahead - before) > JUMP_SECONDS


class FileAge:
    """The age of one file; a clock that is set meanwhile makes it neither older nor younger."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._touched = self._age = self._seen_at = 0.0

    def of(self, touched: float) -> float:
        """Return the seconds since this time of its last change, which may have been one of the future."""
        if touched != self._touched:
            self._touched, self._seen_at = touched, self._clock.monotonic()
            self._age = max(0.0, self._clock.wall() - touched)
        return self._age + self._clock.monotonic() - self._seen_at
