"""Earlier readings to compare with, for values that NVML derives from the difference of two."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")

# Below this the counters behind GPM may not have been updated in between (nvml.h, nvmlGpmMetricsGet: 100 ms).
CLOSEST_SECONDS = 0.1
# An average over longer than this isn't about now any more: nobody scraped for a while.
OLDEST_SECONDS = 120.0
# Two Prometheus servers that scrape the same exporter a moment apart: the second one's average should span its own
# interval as well, not that moment.
SPACING_SECONDS = 1.0


class Traffic(NamedTuple):
    """Bytes since the driver was loaded."""

    transmitted: float
    received: float


class RateWindow(Generic[T]):
    """The latest two readings that lie at least a second apart; times are monotonic, in seconds."""

    def __init__(self) -> None:
        self._kept: list[tuple[float, T]] = []

    def before(self, now: float) -> tuple[float, T] | None:
        """Return the newest reading that is a second old, else the oldest that is not too close, else None."""
        usable = [(at, reading) for at, reading in self._kept if CLOSEST_SECONDS <= now - at <= OLDEST_SECONDS]
        spaced = [(at, reading) for at, reading in usable if now - at >= SPACING_SECONDS]
        return spaced[-1] if spaced else usable[0] if usable else None

    def too_early(self, now: float) -> bool:
        """Return whether a reading taken now would come too soon after the last one."""
        return bool(self._kept) and now - self._kept[-1][0] < CLOSEST_SECONDS

    def keep(self, now: float, reading: T) -> T | None:
        """Keep a reading; return the one that isn't needed any more, which may be this one."""
        if self._kept and now - self._kept[-1][0] < SPACING_SECONDS:
            return reading
        self._kept.append((now, reading))
        return self._kept.pop(0)[1] if len(self._kept) > 2 else None

    def forget(self) -> list[T]:
        """Drop all readings; return those that were kept."""
        kept, self._kept = [reading for _, reading in self._kept], []
        return kept
