"""Virtual time: of a whole site, and of each node since its boot."""

from __future__ import annotations

# How long a node has been up when a situation begins: longer than any rule or collector looks back.
UPTIME_SECONDS = 30 * 86400.0


class VirtualTime:
    """Seconds since the first scrape of a situation; they move when somebody says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def since_creation(self) -> float:
        """Return seconds that are never negative: hardware existed before the first scrape."""
        return UPTIME_SECONDS + self.now


class HostClock:
    """A node's clocks; see :class:`pyrometer_kit.clock.Clock`. The wall's are promtool's: 0 at the first scrape.

    Attributes:
        ahead: how far the wall clock is ahead of the true time, in seconds.
    """

    def __init__(self, time: VirtualTime) -> None:
        self._time = time
        self._booted = -UPTIME_SECONDS
        self.ahead = 0.0

    def wall(self) -> float:
        """Return seconds since the first scrape."""
        return self._time.now + self.ahead

    def monotonic(self) -> float:
        """Return seconds since the node's boot."""
        return self._time.now - self._booted

    def boot(self) -> None:
        """Start the monotonic clock again."""
        self._booted = self._time.now
