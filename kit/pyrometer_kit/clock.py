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
