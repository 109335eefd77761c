"""Names that the job chooses itself: of metrics, of parts beyond the known ones, and what had no place."""

from __future__ import annotations

import mmap
import os

from pyrometer import ring
from pyrometer._step import Part

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pyrometer._step import Step

_WORDS = ring.NAME_BYTES // 8


class Names:
    """The names of one run, written into the ring before their first use, and the values of its metrics.

    Attributes:
        say: Writes one line to the job.
    """

    def __init__(self, step: Step) -> None:
        self.say: Callable[[str], None] = lambda _line: None
        self._step = step
        self._metrics: dict[str, int] = {}
        self._parts: dict[str, int] = {}
        self._values: memoryview[float] | None = None
        self._no_values = ""
        self._said: set[str] = set()

    def metric(self, name: str, fd: int) -> int | None:
        """Return the number of a metric, new or known; None where there is no place for it."""
        number = self._metrics.get(name)
        if number is not None or self._no_values:
            return number
        number = self._place(name, self._metrics, ring.MAX_METRICS, "metric")
        if number is not None:
            if self._values is None and not self._map(fd):
                return None
            self._write(ring.METRIC_NAMES_SLOT + number * _WORDS, name)
            self._metrics[name] = number
        return number

    def put(self, number: int, value: float) -> None:
        """Set a metric of the step under way."""
        step = self._step
        if self._values is None:
            return
        if not step.flags & ring.FLAG_METRICS:
            step.metrics = 0
        self._values[step.count % ring.CAPACITY * ring.MAX_METRICS + number] = value
        step.metrics |= 1 << number
        step.flags |= ring.FLAG_METRICS

    def part(self, name: str) -> Part | None:
        """Return a new part; None where there is no place for it."""
        number = self._place(name, self._parts, ring.MAX_NAMED_PARTS, "part")
        if number is None:
            return None
        self._write(ring.PART_NAMES_SLOT + number * _WORDS, name)
        self._parts[name] = number
        return Part(self._step.slots, len(ring.PARTS) + number, ring.NAMED_PART_TOTALS_SLOT + number)

    def dropped(self, what: str, why: str) -> None:
        """Say once what is not recorded."""
        if what not in self._said and len(self._said) < ring.MAX_METRICS:
            self._said.add(what)
            self.say(f"{what} is not recorded: {why}")

    def move(self, fd: int) -> None:
        """Take the values along to another ring.

        Raises:
            OSError: the file can't grow.
        """
        if self._values is not None:
            values = _map_values(fd)
            values[:] = self._values
            self._values = values

    def stop(self) -> None:
        """Release the ring's memory."""
        self._values = None
        self._metrics.clear()

    def _map(self, fd: int) -> bool:
        """Take memory for values, once: a full folder must not cost every step another try."""
        try:
            self._values = _map_values(fd)
        except OSError as error:
            self._no_values = str(error.strerror or error)
            self.dropped("any metric of the job's own", f"no memory for it in the rings' folder: {self._no_values}")
        return self._values is not None

    def _place(self, name: str, known: dict[str, int], most: int, kind: str) -> int | None:
        if not name or len(name.encode("utf-8", "replace")) > ring.NAME_BYTES:
            self.dropped(f"{kind} {_shown(name)}", f"names have 1 to {ring.NAME_BYTES} bytes")
        elif len(known) >= most:
            self.dropped(f"{kind} {_shown(name)}", f"a run has at most {most} of its own")
        else:
            return len(known)
        return None

    def _write(self, slot: int, name: str) -> None:
        padded = name.encode("utf-8", "replace").ljust(ring.NAME_BYTES, b"\0")
        self._step.slots[slot : slot + _WORDS] = memoryview(padded).cast("q")


def _shown(name: object) -> str:
    return repr(name)[:60]


def _map_values(fd: int) -> memoryview[Any]:
    """Return the place of the metrics' values, behind the records: taken only where a job has metrics of its own.

    Raises:
        OSError: the file can't grow.
    """
    # As in create_ring: all pages now, as a write to one that can't be provided would end the job.
    os.posix_fallocate(fd, ring.VALUES_OFFSET, ring.VALUES_BYTES)
    found = os.fstat(fd)
    whole = mmap.mmap(fd, ring.VALUES_OFFSET + ring.VALUES_BYTES)
    # Mapping moves the access time as reading does, by which an earlier exporter is known: see _first_steps.Reading.
    os.utime(fd, ns=(found.st_atime_ns, found.st_mtime_ns))
    return memoryview(whole)[ring.VALUES_OFFSET :].cast("d")
