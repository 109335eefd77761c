"""When digests are sent, and about which time they are."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone, tzinfo

from pyrometer_kit.prometheus import Prometheus

DAY = 86_400.0
WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


@dataclass(frozen=True)
class Schedule:
    """When a digest is sent: minutes of the local day, and the weekday of a weekly one (0 is Monday)."""

    kind: str
    minutes: int
    weekday: int | None = None

    def latest(self, now: float, zone: tzinfo) -> float:
        """The newest time at or before now when it was to be sent."""
        local = datetime.fromtimestamp(now, tz=zone)
        for back in range(9):
            day = local.date() - timedelta(days=back)
            at = datetime(day.year, day.month, day.day, self.minutes // 60, self.minutes % 60, tzinfo=zone)
            if at.timestamp() <= now and self.weekday in (None, day.weekday()):
                return at.timestamp()
        raise AssertionError("a week has every weekday")

    def span(self, end: float, zone: tzinfo) -> tuple[float, float]:
        """The day or week that a digest of that time is about: it ends then (23 or 25 hours when clocks change)."""
        local = datetime.fromtimestamp(end, tz=zone)
        days = 1 if self.kind == "daily" else 7
        day = local.date() - timedelta(days=days)
        start = datetime(day.year, day.month, day.day, local.hour, local.minute, tzinfo=zone)
        return start.timestamp(), end


@dataclass(frozen=True)
class Digests:
    """Which digests are sent, in whose time; `prometheus` may take its time to answer."""

    schedules: tuple[Schedule, ...] = ()
    zone: tzinfo = timezone.utc
    prometheus: Prometheus | None = None
