"""Every batch as a timestamped point, served once to each consumer.

Prometheus keeps all points of a series that one scrape brings, as long as they come in order and are newer than what
it has. So each consumer (``/batches?consumer=prom-a``) has a cursor: the newest point that it took. The cursor moves
only when the answer was taken. The newest point of every series is served again each time: Prometheus accepts it
silently, and would otherwise end the series with a stale marker of *its* clock, which a node whose clock is a little
behind could not follow in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

# What Prometheus would still take: it refuses points older than about an hour before its newest data.
KEEP_SECONDS = 3000.0
MAX_POINTS = 20_000
# One answer: 2,000 steps of five series are about 600 kB.
MAX_POINTS_PER_REPLY = 2_000
# Two Prometheus servers and an agent are common; each name costs a few hundred bytes.
MAX_CONSUMERS = 16

RunKey = tuple[str, str]
"""Run and attempt."""


@dataclass(frozen=True)
class Point:
    """One batch; None is unknown.

    ``timestamp`` is the end of the step in milliseconds since the epoch, ``sequence`` its number in the rank's ring,
    ``step`` its number in the run.
    """

    timestamp: int
    sequence: int
    step: int
    seconds: float
    mfu: float | None
    flops_per_second: float | None
    loss: float | None
    grad_norm: float | None
    tags: tuple[str, ...]

    def columns(self) -> Iterator[tuple[str, float]]:
        """The values that this batch has, by the name of their series; a tag is ``tag:checkpoint`` with value 1."""
        for name in ("mfu", "flops_per_second", "seconds", "step", "loss", "grad_norm"):
            value = getattr(self, name)
            if value is not None:
                yield name, value
        for tag in self.tags:
            yield f"tag:{tag}", 1.0


@dataclass(frozen=True)
class Fresh:
    """What a consumer gets of a run: ``points`` it hasn't got, and ``again`` the newest of each other series."""

    points: tuple[Point, ...]
    again: Mapping[str, Point]

    def samples(self) -> Iterator[tuple[str, float, int]]:
        """Series name, value and timestamp in ms; those of one series in order of time."""
        for name, point in self.again.items():
            yield name, dict(point.columns())[name], point.timestamp
        for point in self.points:
            for name, value in point.columns():
                yield name, value, point.timestamp


@dataclass
class _Series:
    points: deque[Point] = field(default_factory=lambda: deque(maxlen=MAX_POINTS))
    newest: int = 0
    latest: dict[str, Point] = field(default_factory=dict)

    def add(self, point: Point) -> None:
        self.newest = point.timestamp
        self.points.append(point)
        self.latest.update((name, point) for name, _ in point.columns())
        while self.points[0].timestamp < point.timestamp - KEEP_SECONDS * 1000:
            self.points.popleft()

    def since(self, cursor: int) -> Fresh:
        points = tuple(_after(self.points, cursor)[:MAX_POINTS_PER_REPLY])
        again = {name: point for name, point in self.latest.items() if point.timestamp <= cursor}
        return Fresh(points, again)


class PointStore:
    """The points of all runs that report on this node. Not thread-safe: the collector locks around it."""

    def __init__(self, cursors: Mapping[str, Mapping[RunKey, int]] | None = None) -> None:
        """``cursors`` are those of an earlier life: consumer, then run, then the newest timestamp it took."""
        self._series: dict[RunKey, _Series] = {}
        self._cursors: dict[str, dict[RunKey, int]] = {name: dict(of) for name, of in (cursors or {}).items()}

    def add(self, key: RunKey, point: Point) -> None:
        """Append a point; if the clock went back, it follows its predecessor by a millisecond, so that none is lost."""
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = _Series(newest=self._newest_taken(key))
        if point.timestamp <= series.newest:
            point = replace(point, timestamp=series.newest + 1)
        series.add(point)

    def next_sequence(self, key: RunKey) -> int | None:
        """The first ring record that some consumer has still to take; None where nothing was taken."""
        cursors = [cursors[key] for cursors in self._cursors.values() if key in cursors]
        series = self._series.get(key)
        if not cursors or series is None:
            return None
        slowest = min(cursors)
        taken = [point.sequence for point in series.points if point.timestamp <= slowest]
        return taken[-1] + 1 if taken else None

    def fresh(self, consumer: str) -> dict[RunKey, Fresh]:
        """Per run what the consumer is to get now."""
        cursors = self._cursors.get(consumer, {})
        return {key: series.since(cursors.get(key, 0)) for key, series in self._series.items()}

    def taken(self, consumer: str, fresh: Mapping[RunKey, Fresh]) -> None:
        """The consumer has these: its cursor moves on."""
        cursors = self._cursors.pop(consumer, {})
        cursors.update({key: of.points[-1].timestamp for key, of in fresh.items() if of.points})
        self._cursors[consumer] = {key: cursor for key, cursor in cursors.items() if key in self._series}
        while len(self._cursors) > MAX_CONSUMERS:
            del self._cursors[next(iter(self._cursors))]  # the one that asked longest ago

    def cursors(self) -> dict[str, dict[RunKey, int]]:
        """All cursors, for :class:`PointStore` of the next life."""
        return {name: dict(of) for name, of in self._cursors.items()}

    def forget(self, keep: Iterable[RunKey]) -> None:
        """Drop all runs but these."""
        kept = set(keep)
        self._series = {key: series for key, series in self._series.items() if key in kept}

    def _newest_taken(self, key: RunKey) -> int:
        return max((cursors.get(key, 0) for cursors in self._cursors.values()), default=0)


def _after(points: deque[Point], cursor: int) -> list[Point]:
    """The points after the cursor, oldest first."""
    found: list[Point] = []
    for point in reversed(points):
        if point.timestamp <= cursor:
            break
        found.append(point)
    found.reverse()
    return found
