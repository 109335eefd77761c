"""Every batch as a timestamped point, served once to each consumer.

Prometheus keeps all points of a series that one scrape brings, as long as they come in order and are newer than what
it has. So each consumer (``/batches?consumer=prom-a``) has a cursor: the newest point that it took. The cursor moves
only when the reply was delivered. The newest point of every series is served again each time, for ten minutes:
Prometheus accepts it silently. One that tracks the staleness of timestamped series (ours doesn't: it loses batches when
a scrape fails) would otherwise end the series with a marker of *its* clock, which a node whose clock is a little behind
could not follow in order.
"""

from __future__ import annotations

import math
import struct
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, NamedTuple

from pyrometer_exporters.framework.shared_folder import fair_shares
from pyrometer_exporters.node.train.batches import COLUMNS, PendingPoints, Point, RunKey, falls_behind, fold
from pyrometer_exporters.node.train.limits import MAX_POINTS_IN_ALL, MAX_RINGS

# Prometheus refuses points older than about an hour before its newest data.
KEEP_SECONDS = 3000.0
MAX_POINTS = 20_000
# How long the newest point of a series is served again: longer than a step. Much later Prometheus would refuse it as
# too old, with a line in its log for every scrape.
AGAIN_SECONDS = 600.0
# A consumer that may lose what it took (killed before it has passed it on) asks for that again, at most so far back.
MAX_REPEAT_SECONDS = 60.0
ONE_DELIVERY_SECONDS = 5.0
# One answer: 2,000 steps of five series are about 600 kB.
MAX_POINTS_PER_REPLY = 2_000
# All runs' points in one answer: about 5 MB.
MAX_POINTS_OF_ALL_RUNS = 20_000
# Rings of one run and attempt on one node, one after the other: restarts that kept the attempt's number.
MAX_RINGS_PER_CURSOR = 16
# Origins of points (ring and tags) that one run's buffer tells apart.
MAX_ORIGINS = 4_096
# Metrics of the job's own, over all rings of a run and attempt; each is a series.
MAX_METRICS = 16
# Prometheus takes nothing that is further ahead of its clock.
AHEAD_SECONDS = 600.0

# A packed point. The step is a float, as a ring may claim any number.
_TIMESTAMP = struct.Struct("<q")
_HEAD = struct.Struct("<qqddIH")
_OPTIONAL = tuple(name for name in COLUMNS if name not in ("seconds", "step"))
_UNKNOWN: dict[str, Any] = dict.fromkeys(_OPTIONAL)


@dataclass
class Cursor:
    """The position of a consumer in a run: the newest timestamp it took, and the first record it lacks of each ring.

    Both are needed: after a restart of the exporter records are read from the rings again, and a clock that was
    set meanwhile gives them other timestamps. The ring that was read last is the last in ``rings``.
    """

    newest: int = 0
    rings: dict[str, int] = field(default_factory=dict)

    def has(self, point: Point) -> bool:
        """Return whether the consumer took this point."""
        return point.sequence < self.rings.get(point.ring, 0)

    def is_newest(self, point: Point) -> bool:
        """Return whether this is the newest point that the consumer took."""
        return next(reversed(self.rings), None) == point.ring and point.sequence == self.rings[point.ring] - 1

    def take(self, points: Iterable[Point]) -> None:
        """Advance over these points, which the consumer got."""
        for point in points:
            self.newest = max(self.newest, point.timestamp)
            self.rings[point.ring] = max(point.sequence + 1, self.rings.pop(point.ring, 0))
        while len(self.rings) > MAX_RINGS_PER_CURSOR:
            del self.rings[next(iter(self.rings))]


Cursors = dict[str, dict[RunKey, Cursor]]
"""By consumer and run."""


_Origin = tuple[str, tuple[str, ...], tuple[str, ...]]
"""Ring, tags, and names of metrics, of which there are few."""


class PointBuffer:
    """The newest MAX_POINTS points in order of time, packed to bytes.

    Packed they take a fraction of the memory of objects, and the garbage collector has nothing to visit.
    """

    def __init__(self) -> None:
        self._packed: deque[bytes] = deque(maxlen=MAX_POINTS)
        self._origins: list[_Origin] = []
        self._numbers: dict[_Origin, int] = {}

    def append(self, point: Point) -> None:
        """Append the newest point."""
        origin = (point.ring, point.tags, tuple([name for name, _ in point.metrics]))
        if len(self._origins) >= MAX_ORIGINS and origin not in self._numbers:
            self._packed.clear()
            self._origins.clear()
            self._numbers.clear()
        number = self._numbers.setdefault(origin, len(self._origins))
        if number == len(self._origins):
            self._origins.append(origin)
        values = [getattr(point, name) for name in _OPTIONAL]
        present = sum([1 << bit for bit, value in enumerate(values) if value is not None])
        head = _HEAD.pack(point.timestamp, point.sequence, point.step, point.seconds, number, present)
        numbers = [value for value in values if value is not None] + [value for _, value in point.metrics]
        self._packed.append(head + struct.pack(f"<{len(numbers)}d", *numbers))

    def forget(self, until: float) -> None:
        """Drop all points older than the timestamp ``until``."""
        while self._packed and _TIMESTAMP.unpack_from(self._packed[0])[0] < until:
            self._packed.popleft()

    def __len__(self) -> int:
        return len(self._packed)

    def shorten(self, length: int) -> int:
        """Drop the oldest points beyond ``length``; return how many."""
        dropped = max(0, len(self._packed) - length)
        for _ in range(dropped):
            self._packed.popleft()
        return dropped

    def after(self, timestamp: int) -> Iterator[Point]:
        """Yield the points newer than ``timestamp``, oldest first."""
        newer: list[bytes] = []
        for packed in reversed(self._packed):
            if _TIMESTAMP.unpack_from(packed)[0] <= timestamp:
                break
            newer.append(packed)
        return map(self._point, reversed(newer))

    def newest_first(self) -> Iterator[Point]:
        """Yield all points."""
        return map(self._point, reversed(self._packed))

    def _point(self, packed: bytes) -> Point:
        timestamp, sequence, step, seconds, number, present = _HEAD.unpack_from(packed)
        ring, tags, names = self._origins[number]
        numbers = iter(struct.unpack_from(f"<{present.bit_count() + len(names)}d", packed, _HEAD.size))
        values = {name: next(numbers) for bit, name in enumerate(_OPTIONAL) if present >> bit & 1}
        values |= {name: int(value) for name, value in values.items() if name == "steps"}
        metrics = tuple(zip(names, numbers, strict=True))
        return Point(**{**_UNKNOWN, **values}, timestamp=timestamp, sequence=sequence, step=int(step),
                     seconds=seconds, ring=ring, tags=tags, metrics=metrics)  # fmt: skip


@dataclass
class _Series:
    uid: int = 0
    points: PointBuffer = field(default_factory=PointBuffer)
    newest: int = 0
    latest: dict[str, Point] = field(default_factory=dict)
    added: dict[str, int] = field(default_factory=dict)  # by ring, the first record that was not added yet
    metrics: set[str] = field(default_factory=set)

    def add(self, point: Point) -> None:
        if point.metrics:
            point = replace(point, metrics=tuple([metric for metric in point.metrics if self._has_place(metric[0])]))
        self.newest = point.timestamp
        self.added[point.ring] = max(point.sequence + 1, self.added.pop(point.ring, 0))
        while len(self.added) > MAX_RINGS:
            del self.added[next(iter(self.added))]
        self.points.append(point)
        for name, _ in point.columns():
            self.latest[name] = point
        self.points.forget(point.timestamp - KEEP_SECONDS * 1000)

    def _has_place(self, metric: str) -> bool:
        if metric not in self.metrics and len(self.metrics) < MAX_METRICS:
            self.metrics.add(metric)
        return metric in self.metrics

    def since(
        self, cursor: Cursor | None, oldest: float, limit: int, recent: float | None = None, repeat: int | None = None
    ) -> PendingPoints:
        """Return the reply to a consumer, for whom one interval ago was the wall clock's time ``recent``.

        Where more points come in an interval than fit into a reply, it would never catch up: it gets means of steps.
        Otherwise it gets once more what it has taken after the timestamp ``repeat``, as far as there is room.
        """
        if cursor is None:
            newest = tuple(islice(self.points.newest_first(), limit))
            return PendingPoints(newest[::-1], {})
        news = (point for point in self.points.after(cursor.newest) if not cursor.has(point))
        if recent is not None and falls_behind(self.points.newest_first(), recent * 1000, limit):
            points = fold(tuple(news), limit)
        else:
            points = tuple(islice(news, limit))
            if repeat is not None:
                taken = [point for point in self.points.after(repeat) if cursor.has(point)]
                points = (*taken[max(0, len(taken) + len(points) - limit) :], *points)
        missing = self.latest.keys() - {name for point in points for name, _ in point.columns()}
        again = {name: point for name in missing if (point := self._newest_of(name, cursor.newest))}
        return PendingPoints(points, {name: point for name, point in again.items() if point.timestamp >= oldest})

    def _newest_of(self, name: str, cursor: int) -> Point | None:
        """Return the newest point of a series that the consumer has, None if it is no longer stored."""
        latest = self.latest[name]
        if latest.timestamp <= cursor:
            return latest
        # A backlog of several replies: the series continues in a later one and must not seem to end in this one.
        old = (point for point in self.points.newest_first() if point.timestamp <= cursor)
        return next((point for point in old if any(name == column for column, _ in point.columns())), None)


class _Delivery(NamedTuple):
    """Deliveries from ``began`` to ``ended`` that moved cursors; ``before`` are their timestamps, by run."""

    began: float
    ended: float
    before: dict[RunKey, int]


class PointStore:
    """The points of all runs that report on this node. Not thread-safe: the collector locks around it."""

    def __init__(self, cursors: Cursors | None = None) -> None:
        """Continue with the ``cursors`` that an earlier process saved."""
        self._series: dict[RunKey, _Series] = {}
        self._cursors: Cursors = cursors or {}
        self._asked: dict[
            str, tuple[float, float]
        ] = {}  # by consumer, when it asked last and how long after the one before
        self._deliveries: dict[str, deque[_Delivery]] = {}
        self.shortened = 0
        """Number of points dropped before their time, for the limit of all runs'."""

    def add(self, key: RunKey, point: Point, uid: int = 0) -> None:
        """Append a point unless it was added before; if the clock went back, it follows its predecessor by 1 ms."""
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = _Series(uid)
        if point.sequence < series.added.get(point.ring, 0):
            return
        cursors = [of[key] for of in self._cursors.values() if key in of]
        # A point that is read again after a restart keeps the timestamp under which it was served.
        stamp = next((cursor.newest for cursor in cursors if cursor.is_newest(point)), point.timestamp)
        floor = max((cursor.newest for cursor in cursors if not cursor.has(point)), default=0)
        stamp = max(stamp, series.newest + 1, floor + 1)
        series.add(point if stamp == point.timestamp else replace(point, timestamp=stamp))

    def trim(self) -> None:
        """Keep to the limit of all runs' points, fair among users."""
        by_user: dict[int, dict[RunKey, int]] = {}
        for key, series in self._series.items():
            by_user.setdefault(series.uid, {})[key] = len(series.points)
        totals = {uid: sum(of_user.values()) for uid, of_user in by_user.items()}
        if sum(totals.values()) <= MAX_POINTS_IN_ALL:
            return
        shares = fair_shares(totals, MAX_POINTS_IN_ALL)
        for uid, of_user in by_user.items():
            for key, length in fair_shares(of_user, shares[uid]).items():
                self.shortened += self._series[key].points.shorten(length)

    def forget_future(self, now: float) -> None:
        """Start over what a clock that was wrong, or a forger, put so far ahead that no Prometheus can have it."""
        latest = (now + AHEAD_SECONDS) * 1000
        for key, series in self._series.items():
            if series.newest > latest:
                self._series[key] = _Series(series.uid, added=series.added)
        for of in self._cursors.values():
            for cursor in of.values():
                if cursor.newest > latest:
                    cursor.newest = 0

    def pending(self, consumer: str | None, now: float = 0.0, again: float = 0.0) -> dict[RunKey, PendingPoints]:
        """Return the reply to a consumer for each run, at the wall clock's time ``now``; None gets the newest.

        A consumer that can take a point twice also gets what it took in the last ``again`` seconds.
        """
        cursors = {} if consumer is None else self._cursors.get(consumer, {})
        oldest = (now - AGAIN_SECONDS) * 1000
        limit = min(MAX_POINTS_PER_REPLY, MAX_POINTS_OF_ALL_RUNS // max(1, len(self._series)))
        usual = None if consumer is None else self._interval(consumer, now)
        recent = None if usual is None else now - usual
        repeat = self._repeat(consumer, now - min(again, MAX_REPEAT_SECONDS)) if consumer and again > 0 else {}
        return {
            key: series.since(
                None if consumer is None else cursors.get(key, Cursor()), oldest, limit, recent, repeat.get(key)
            )
            for key, series in self._series.items()
        }

    def _repeat(self, consumer: str, since: float) -> dict[RunKey, int]:
        """Return the timestamp that each run's cursor had before the deliveries after ``since``."""
        positions: dict[RunKey, int] = {}
        for delivery in self._deliveries.get(consumer, ()):
            if delivery.ended >= since:
                positions = delivery.before | positions
        return positions

    def _interval(self, consumer: str, now: float) -> float | None:
        """Return how often a consumer asks in s, None where that isn't known yet; an outage is no interval."""
        at, before = self._asked.get(consumer, (now, math.inf))
        self._asked[consumer] = now, now - at or math.inf
        usual = min(now - at, before)
        return usual if usual > 0 else None

    def confirm(self, consumer: str, pending: Mapping[RunKey, PendingPoints], now: float = 0.0) -> None:
        """Advance the consumer's cursor over a delivered reply; it never goes back, whatever the order of replies."""
        cursors = self._cursors.pop(consumer, {})
        before: dict[RunKey, int] = {}
        for key, of in pending.items():
            if of.points:
                cursor = cursors.setdefault(key, Cursor())
                position = cursor.newest
                cursor.take(of.points)
                if cursor.newest > position:
                    before[key] = position
        self._note_delivery(consumer, now, before)
        self._cursors[consumer] = {key: cursor for key, cursor in cursors.items() if key in self._series}

    def _note_delivery(self, consumer: str, now: float, before: dict[RunKey, int]) -> None:
        """Note where the cursors were; deliveries of a few seconds are one, however often a stranger asks."""
        deliveries = self._deliveries.setdefault(consumer, deque())
        while deliveries and deliveries[0].ended < now - MAX_REPEAT_SECONDS:
            deliveries.popleft()
        if before and deliveries and now - deliveries[-1].began < ONE_DELIVERY_SECONDS:
            last = deliveries[-1]
            deliveries[-1] = _Delivery(last.began, max(now, last.ended), before | last.before)
        elif before:
            deliveries.append(_Delivery(now, now, before))

    def drop(self, consumer: str) -> None:
        """Forget a consumer's cursor."""
        self._cursors.pop(consumer, None)
        self._asked.pop(consumer, None)
        self._deliveries.pop(consumer, None)

    def cursors(self) -> Cursors:
        """Return all cursors, for the :class:`PointStore` of the next process."""
        return self._cursors

    def forget(self, keep: Iterable[RunKey]) -> None:
        """Drop all runs but these."""
        runs = set(keep)
        self._series = {key: series for key, series in self._series.items() if key in runs}
