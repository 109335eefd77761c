"""Whose time a run's steps have, and the batches that wait for it: the GPU's comes late, a launch's means nothing."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from pyrometer import ring
from pyrometer_exporters.node.train.batches import Point, mean
from pyrometer_exporters.node.train.rings import Header, Record

NAMES = {ring.HOST_TIME: "host", ring.DEVICE_TIME: "device", ring.LAUNCH_TIME: "launch"}
# A rank queries its events at the end of the next step. A GPU that has passed none for so long hangs; Prometheus takes
# batches for about an hour.
PATIENCE_SECONDS = 600.0
# A step that waits for the GPU takes the time of those that were only launched, so at least that of two more.
_WAITED = 3.0
# Where no step is seen to wait, the GPU's full queue paces the host, and any mean is right after a while.
_MOST_SECONDS, _MOST_STEPS = 10.0, 1000


@dataclass(slots=True)
class Settling:
    """Which records of a rank have their final times.

    Attributes:
        final: The rank has ended, so no time changes any more.
    """

    final: bool = False
    _settled: int = -1
    _since: float = 0.0

    def ready(self, header: Header, now: float) -> int:
        """Return how many records can be served, at the monotonic time ``now``."""
        if header.settled != self._settled:
            self._settled, self._since = header.settled, now
        if self.final or header.timing != ring.DEVICE_TIME or now - self._since > PATIENCE_SECONDS:
            return header.count
        return min(header.settled, header.count)


def is_launch(record: Record, header: Header) -> bool:
    """Return whether a record's time is only that of its launch."""
    return record.device is None and header.timing != ring.HOST_TIME and record.sequence >= header.settled


@dataclass(slots=True)
class LaunchSpan:
    """Launches that follow each other, up to a step that waited for the GPU; only their mean is a time of steps."""

    _points: list[Point] = field(default_factory=list)
    _seconds: float = 0.0

    def add(self, point: Point) -> list[Point]:
        """Add a step; return the mean of the span if this ends it, else nothing."""
        waited = point.seconds * len(self._points) >= _WAITED * self._seconds > 0.0
        self._points.append(point)
        self._seconds += point.seconds
        if waited or self._seconds >= _MOST_SECONDS or len(self._points) >= _MOST_STEPS:
            return self.end()
        return []

    def end(self) -> list[Point]:
        """Return the mean of the span, if there is one, with the tags of all its steps."""
        points, self._points, self._seconds = self._points, [], 0.0
        if not points:
            return []
        return [replace(mean(points), tags=tuple(dict.fromkeys(tag for point in points for tag in point.tags)))]
