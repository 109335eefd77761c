"""Read the client's ring files: complete records only, and safe against anything a rank does to its file.

Read with pread rather than mapped: a rank that truncates its file would turn a mapped read into SIGBUS.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import math
import os
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pyrometer import ring
from pyrometer_exporters.node.train.description import MAX_NUMBER, BadRingError, Meta, links_of, padded_text, parse_meta

_HEADER = struct.Struct(
    f"<{ring.FLOPS_EXTRA_SLOT}qd{ring.LONGEST_TICK_SLOT - ring.FLOPS_EXTRA_SLOT}q"
    f"{8 * (ring.NAMED_PART_TOTALS_SLOT - ring.LONGEST_TICK_SLOT - 1)}x{ring.MAX_NAMED_PARTS}q3q"
)
_VALUES = struct.Struct(f"<{ring.MAX_METRICS}d")
_COUNT = struct.Struct("<q")
# By the ring's magic number: its version's record.
_RECORDS = {
    ring.MAGIC_V1: struct.Struct(f"<6q2d{ring.RECORD_SLOTS_V1 - 8}q"),
    ring.MAGIC: struct.Struct(f"<6q2d{ring.RECORD_SLOTS - 8}q"),
}
_FLOPS = struct.Struct("<d")
_RARE = (
    ring.FLAG_GLOBAL_BATCH_SIZE | ring.FLAG_SEQUENCE_LENGTH | ring.FLAG_RECOMPUTE | ring.FLAG_STEPS
    | ring.FLAG_REPORTED_FLOPS | ring.FLAG_REPORTED_MFU | ring.FLAG_DEVICE
)  # fmt: skip
_HEADER_TRIES = 3


@dataclass(slots=True)  # not frozen, as that makes each at twice the cost
class Header:
    """The changing part of a ring's header, itself never changed; times are CLOCK_MONOTONIC nanoseconds."""

    created: int
    closed: bool
    count: int
    step_started: int
    step_total: int
    part: int
    part_started: int
    tokens_extra: int
    flops_extra: float
    part_totals: tuple[int, ...]
    gc_pauses: int
    gc_pause_total: int
    gc_step: int
    stack_signal: int
    steps_extra: int
    ticking: int
    longest_tick: int
    named_part_totals: tuple[int, ...]
    skipped: int
    timing: int
    settled: int

    @property
    def steps(self) -> int:
        """Steps finished; a record that was read from a log may stand for many."""
        return self.count + self.steps_extra


class Record(NamedTuple):
    """One finished step, or the steps that a log's line stands for; ``sequence`` counts from 0 within the ring.

    ``device`` is its start and end on the GPU, where it was timed there.
    """

    sequence: int
    start: int
    end: int
    flags: int
    tokens: float | None
    flops: float | None
    loss: float | None
    grad_norm: float | None
    global_batch_size: int | None = None
    sequence_length: int | None = None
    recompute: str | None = None
    steps: int = 1
    step: int | None = None
    reported_flops: float | None = None
    reported_mfu: float | None = None
    metrics: tuple[tuple[str, float], ...] = ()
    device: tuple[int, int] | None = None

    def on_device(self) -> Record:
        """Return the record with the times of the GPU, where it has them."""
        return self if self.device is None else self._replace(start=self.device[0], end=self.device[1])


class RingFile:
    """One rank's ring, kept open."""

    def __init__(self, path: str, folder: int | None = None) -> None:
        # O_NONBLOCK: a FIFO of that name must not hang us. O_NOFOLLOW: anyone may write into the folder, which its
        # owner may exchange for a link.
        name = path if folder is None else os.path.basename(path)  # noqa: PTH119
        self._fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        self.path = path
        self._last: tuple[bytes, Header] | None = None
        self._names: dict[int, str] = {}
        self.uid = -1
        """The user who owns the file."""
        self.identity = (0, 0)
        """Its device and inode."""
        try:
            self.meta = self._read_meta()
            self.first_header = self.header()
        except BaseException:
            os.close(self._fd)
            raise

    def header(self) -> Header:
        """Return the current header; the last one after :meth:`close`.

        The end of a step is several writes. Between two of them the sums don't agree, and a counter could seem to go
        back; so the header is read until it is the same twice, usually at once.

        Raises:
            OSError: the file can't be read.
            BadRingError: it is truncated, or its sums are negative.
        """
        if self._fd < 0 and self._last is not None:
            return self._last[1]
        last, data = self._last, self._read(0, _HEADER.size)
        if last is not None and last[0] == data:  # unchanged since the last read, so the same twice
            return last[1]
        for _ in range(_HEADER_TRIES):
            before, data = data, self._read(0, _HEADER.size)
            if before == data:
                break
        header = self._parsed(data)
        self._last = data, header
        return header

    def _parsed(self, data: bytes) -> Header:
        slots = _HEADER.unpack(data)
        if min(slots[ring.COUNT_SLOT], slots[ring.STEP_TOTAL_SLOT], *slots[ring.PART_TOTALS_SLOT :]) < 0:
            raise BadRingError(f"{self.path} has a negative count")
        return Header(
            created=self._here(slots[ring.CREATED_SLOT]),
            closed=slots[ring.STATE_SLOT] == ring.CLOSED,
            count=slots[ring.COUNT_SLOT],
            step_started=self._here(slots[ring.STEP_STARTED_SLOT]),
            step_total=slots[ring.STEP_TOTAL_SLOT],
            part=slots[ring.PART_SLOT],
            part_started=self._here(slots[ring.PART_STARTED_SLOT]),
            tokens_extra=slots[ring.TOKENS_EXTRA_SLOT],
            flops_extra=slots[ring.FLOPS_EXTRA_SLOT],
            part_totals=slots[ring.PART_TOTALS_SLOT : ring.PART_TOTALS_SLOT + len(ring.PARTS)],
            gc_pauses=slots[ring.GC_PAUSES_SLOT],
            gc_pause_total=slots[ring.GC_PAUSE_TOTAL_SLOT],
            gc_step=slots[ring.GC_STEP_SLOT],
            stack_signal=slots[ring.STACK_SIGNAL_SLOT],
            steps_extra=slots[ring.STEPS_EXTRA_SLOT],
            ticking=slots[ring.TICKING_SLOT],
            longest_tick=slots[ring.LONGEST_TICK_SLOT],
            named_part_totals=slots[ring.LONGEST_TICK_SLOT + 1 : -3],
            skipped=slots[-3],
            timing=slots[-2],
            settled=slots[-1],
        )

    def records(self, first: int, count: int) -> Iterator[Record]:
        """Yield the records ``first`` to ``count - 1``, without those that the writer has overtaken.

        Raises:
            OSError: the file can't be read.
            BadRingError: it is truncated.
        """
        first = max(first, count - ring.CAPACITY, 0)
        chunks = [(number, self._chunk(number, length)) for number, length in _runs(first, count)]
        (now,) = _COUNT.unpack(self._read(8 * ring.COUNT_SLOT, _COUNT.size))
        oldest_whole = now - ring.CAPACITY
        for start, data in chunks:
            for index, slots in enumerate(self._record.iter_unpack(data)):
                number = start + index
                # The sequence test also covers processors that make the count visible before the record.
                if number > oldest_whole and slots[ring.SEQUENCE] == number + 1:
                    record = self._with_metrics(_record(slots), slots)
                    if self._shift:
                        record = self._shifted(record)
                    yield record

    def last_words(self) -> str:
        """Return how the process ended as far as Python knew; empty where an older client wrote the ring.

        Raises:
            OSError: the file can't be read.
            BadRingError: it is truncated.
        """
        return padded_text(self._read(8 * ring.EXIT_SLOT, ring.EXIT_BYTES))

    def part_name(self, number: int) -> str:
        """Return the name of a part by its number in the header; empty where there is none, or it can't be read."""
        if 0 <= number < len(ring.PARTS):
            return ring.PARTS[number]
        return self._name(ring.PART_NAMES_SLOT, number - len(ring.PARTS), ring.MAX_NAMED_PARTS)

    def gpu_model(self) -> str:
        """Return the GPU's name that the rank learned at its first step; empty where it knows none.

        Raises:
            OSError: the file can't be read.
            BadRingError: it is truncated.
        """
        return padded_text(self._read(8 * ring.GPU_MODEL_SLOT, ring.GPU_MODEL_BYTES))

    def links(self) -> tuple[tuple[str, str], ...]:
        """Return names and addresses of the run's pages in trackers, of those that are web addresses.

        Raises:
            OSError: the file can't be read.
            BadRingError: it is truncated.
        """
        return links_of(padded_text(self._read(8 * ring.LINKS_SLOT, ring.LINKS_BYTES), ring.LINKS_BYTES))

    def last_part(self) -> str:
        """Return the part that an exception left in the step that was the last; empty where none did.

        Raises:
            OSError: the file can't be read.
            BadRingError: it is truncated.
        """
        (mark,) = _COUNT.unpack(self._read(8 * ring.EXIT_PART_SLOT, _COUNT.size))
        return self.part_name((mark & 0xFF) - 1) if mark >> 8 == self.header().count + 1 else ""

    def alive(self) -> bool:
        """Return whether the rank's process still holds its lock; it loses it by any kind of end, SIGKILL included."""
        self._show_reading()
        try:
            fcntl.flock(self._fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        fcntl.flock(self._fd, fcntl.LOCK_UN)
        return False

    def close(self) -> None:
        """Close the file; what was read of it stays known, and so do the names of the parts that it has times of."""
        if self._fd >= 0:
            for number, total in enumerate(self._last[1].named_part_totals if self._last is not None else ()):
                if total:
                    self.part_name(len(ring.PARTS) + number)
            os.close(self._fd)
            self._fd = -1

    def _here(self, time: int) -> int:
        """Return one of the rank's times by our clock; 0 is none."""
        return time + self._shift if time and self._shift else time

    def _shifted(self, record: Record) -> Record:
        device = record.device and (self._here(record.device[0]), self._here(record.device[1]))
        return record._replace(start=self._here(record.start), end=self._here(record.end), device=device)

    def _name(self, first: int, number: int, count: int) -> str:
        """Return a name that the job chose; one that was read stays as it is."""
        if not 0 <= number < count or not self._has_names:
            return ""
        slot = first + number * ring.NAME_BYTES // 8
        name = self._names.get(slot)
        if not name:
            # Names are read while all ranks are served: those of a ring that was cut short cost no other rank.
            with contextlib.suppress(OSError, BadRingError):
                name = self._names[slot] = padded_text(self._read(8 * slot, ring.NAME_BYTES))
        return name or ""

    def _with_metrics(self, record: Record, slots: tuple[Any, ...]) -> Record:
        if not record.flags & ring.FLAG_METRICS or len(slots) <= ring.METRICS:
            return record
        place = ring.VALUES_OFFSET + record.sequence % ring.CAPACITY * _VALUES.size
        values = _VALUES.unpack(self._read(place, _VALUES.size))
        (now,) = _COUNT.unpack(self._read(8 * ring.COUNT_SLOT, _COUNT.size))
        if now - ring.CAPACITY >= record.sequence:  # meanwhile another step writes there
            return record
        bits = slots[ring.METRICS]
        names = [
            self._name(ring.METRIC_NAMES_SLOT, n, len(values)) if bits >> n & 1 else "" for n in range(len(values))
        ]
        return record._replace(metrics=tuple([pair for pair in zip(names, values, strict=True) if pair[0]]))

    def _show_reading(self) -> None:
        """Hold a lock by which the rank sees that its ring is read, and by whom, until the file is closed.

        Taken again at each look, as this process loses it when another part of it closes the same file.
        """
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.lockf(self._fd, fcntl.LOCK_SH | fcntl.LOCK_NB, 1)

    def _chunk(self, number: int, length: int) -> bytes:
        place = ring.HEADER_BYTES + (number % ring.CAPACITY) * self._record.size
        return self._read(place, length * self._record.size)

    def _read(self, offset: int, size: int) -> bytes:
        data = os.pread(self._fd, size, offset)
        if len(data) != size:
            raise BadRingError(f"{self.path} is truncated")
        return data

    def _read_meta(self) -> Meta:
        status = os.fstat(self._fd)
        if not stat.S_ISREG(status.st_mode):
            raise BadRingError(f"{self.path} is not a regular file")
        self.uid, self.identity = status.st_uid, (status.st_dev, status.st_ino)
        magic, _created, self.pid, length = struct.unpack("<4q", self._read(0, 32))
        if magic not in _RECORDS or not 0 < length <= ring.HEADER_BYTES - ring.META_OFFSET:
            raise BadRingError(
                f"{self.path} is not a ring of version 1 or 2: update the exporter to the client's version"
            )
        meta = parse_meta(self.path, self._read(ring.META_OFFSET, length))
        # A job in a time namespace has another CLOCK_MONOTONIC than we have.
        self._shift = clock_offset() - meta.clock_offset
        self._record = _RECORDS[magic]
        self._has_names = length <= ring.META_BYTES
        return meta


@functools.cache
def clock_offset() -> int:
    """Return by how many ns our CLOCK_MONOTONIC is ahead of the machine's, see time_namespaces(7)."""
    with contextlib.suppress(OSError, ValueError):
        lines = Path("/proc/self/timens_offsets").read_text(encoding="ascii").splitlines()
        offsets = {name: int(s) * 1_000_000_000 + int(ns) for name, s, ns in map(str.split, lines)}
        return offsets.get("monotonic", 0)
    return 0


def _runs(first: int, count: int) -> Iterator[tuple[int, int]]:
    """Yield (first number, length) of records that are contiguous in the file: one span, or two across its end."""
    while first < count:
        length = min(count - first, ring.CAPACITY - first % ring.CAPACITY)
        yield first, length
        first += length


def _record(slots: tuple[Any, ...]) -> Record:
    flags = slots[ring.FLAGS]
    record = Record(
        slots[ring.SEQUENCE] - 1,
        slots[ring.START],
        slots[ring.END],
        flags,
        slots[ring.TOKENS] if flags & ring.FLAG_TOKENS else None,
        _double(slots, ring.FLOPS, ring.FLAG_FLOPS),
        slots[ring.LOSS] if flags & ring.FLAG_LOSS else None,
        slots[ring.GRAD_NORM] if flags & ring.FLAG_GRAD_NORM else None,
    )
    return (
        record
        if not flags & _RARE
        else record._replace(
            global_batch_size=_changed(slots, ring.GLOBAL_BATCH_SIZE, ring.FLAG_GLOBAL_BATCH_SIZE),
            sequence_length=_changed(slots, ring.SEQUENCE_LENGTH, ring.FLAG_SEQUENCE_LENGTH),
            recompute=_recompute(slots),
            steps=_changed(slots, ring.STEPS, ring.FLAG_STEPS) or 1,
            step=_changed(slots, ring.STEP, ring.FLAG_STEPS),
            reported_flops=_double(slots, ring.REPORTED_FLOPS, ring.FLAG_REPORTED_FLOPS),
            reported_mfu=_double(slots, ring.REPORTED_MFU, ring.FLAG_REPORTED_MFU),
            device=_device(slots),
        )
    )


def _double(slots: tuple[Any, ...], place: int, flag: int) -> float | None:
    if len(slots) <= place or not slots[ring.FLAGS] & flag:
        return None
    (value,) = _FLOPS.unpack(struct.pack("<q", slots[place]))
    return float(value) if math.isfinite(value) else None


def _device(slots: tuple[Any, ...]) -> tuple[int, int] | None:
    if len(slots) <= ring.DEVICE_END or not slots[ring.FLAGS] & ring.FLAG_DEVICE:
        return None
    start, end = slots[ring.DEVICE_START], slots[ring.DEVICE_END]
    return (start, end) if 0 < start < end else None


def _changed(slots: tuple[Any, ...], place: int, flag: int) -> int | None:
    """Return a number that differs from the description, None where it doesn't."""
    if len(slots) <= place or not slots[ring.FLAGS] & flag or not 0 < slots[place] <= MAX_NUMBER:
        return None
    return int(slots[place])


def _recompute(slots: tuple[Any, ...]) -> str | None:
    if len(slots) <= ring.RECOMPUTE_NUMBER or not slots[ring.FLAGS] & ring.FLAG_RECOMPUTE:
        return None
    number = slots[ring.RECOMPUTE_NUMBER]
    return ring.RECOMPUTE[number] if 0 <= number < len(ring.RECOMPUTE) else None
