"""A ring (:mod:`pyrometer.ring`) written from a log: one record per line, which may stand for many steps."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import struct
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pyrometer import ring
from pyrometer._ring_file import create_ring, safe_name
from pyrometer.follow.log_line import LoggedStep
from pyrometer.follow.step_reader import StepInterval

# In a ring's file name, in the place of the rank's number.
_MARK = "log"
# Larger integers are no longer exact in a sample.
_MAX_INTEGER = 1 << 53


class LogRing:
    """One attempt of a run, as its log describes it.

    Args:
        folder: Of the rings.
        description: The run's, as :func:`pyrometer.start` writes it; its ``source`` is the log's format.

    Attributes:
        path: The ring file.

    Raises:
        OSError: the ring can't be made.
    """

    def __init__(self, folder: str, description: Mapping[str, Any]) -> None:
        name = f"{_prefix(str(description['run']))}{os.getpid()}.{time.monotonic_ns()}"
        mapping, self._fd, self.path = create_ring(folder, name, json.dumps(description).encode())
        self._slots = memoryview(mapping).cast("q")
        self._doubles = memoryview(mapping).cast("d")
        self._count = 0

    def append(self, interval: StepInterval, end: int, tokens: float, flops: float, tags: frozenset[str]) -> None:
        """Write the record of one line.

        Args:
            interval: The line's steps.
            end: When the last of them ended, in CLOCK_MONOTONIC ns.
            tokens: Of all its steps, 0 where unknown.
            flops: Of all its steps, 0 where unknown.
            tags: Of :data:`pyrometer.ring.TAGS`.
        """
        seconds, slots = (interval.seconds or 0.0) * interval.steps, self._slots
        at = ring.FIRST_RECORD_SLOT + (self._count % ring.CAPACITY) * ring.RECORD_SLOTS
        self._count += 1
        slots[at + ring.SEQUENCE] = self._count
        slots[at + ring.START] = end - int(seconds * 1e9)
        slots[at + ring.END] = end
        slots[at + ring.STEPS], slots[at + ring.STEP] = interval.steps, interval.logged.step
        flags = self._write_values(at, interval.logged, tokens, flops)
        slots[at + ring.FLAGS] = flags | sum(ring.TAG_BITS[tag] for tag in tags)
        slots[ring.STEP_TOTAL_SLOT] += int(seconds * 1e9)
        slots[ring.STEPS_EXTRA_SLOT] += interval.steps - 1
        slots[ring.TOKENS_EXTRA_SLOT] += int(tokens)
        self._doubles[ring.FLOPS_EXTRA_SLOT] += flops
        slots[ring.COUNT_SLOT] = self._count  # after all of it: a record below the count is complete
        # A ring's age counts from here. Not later than END, as that would mean that a step is under way.
        slots[ring.STEP_STARTED_SLOT] = end

    def close(self, *, ended_well: bool) -> None:
        """End the attempt; unless it ended well, it looks crashed."""
        if ended_well:
            self._slots[ring.STATE_SLOT] = ring.CLOSED
        os.close(self._fd)

    def _write_values(self, at: int, logged: LoggedStep, tokens: float, flops: float) -> int:
        """Write the line's values into the record. Return the flags of those that it has."""
        doubles, flags = self._doubles, ring.FLAG_STEPS
        reported = None if logged.teraflops is None else logged.teraflops * 1e12
        for slot, flag, value in (
            (ring.LOSS, ring.FLAG_LOSS, logged.loss),
            (ring.GRAD_NORM, ring.FLAG_GRAD_NORM, logged.grad_norm),
            (ring.FLOPS, ring.FLAG_FLOPS, flops or None),
            (ring.REPORTED_FLOPS, ring.FLAG_REPORTED_FLOPS, reported),
            (ring.REPORTED_MFU, ring.FLAG_REPORTED_MFU, logged.mfu),
        ):
            if value is not None:
                doubles[at + slot] = value
                flags |= flag
        for slot, flag, size in (
            (ring.TOKENS, ring.FLAG_TOKENS, tokens),
            (ring.GLOBAL_BATCH_SIZE, ring.FLAG_GLOBAL_BATCH_SIZE, logged.samples),
            (ring.SEQUENCE_LENGTH, ring.FLAG_SEQUENCE_LENGTH, logged.sequence),
        ):
            if size and size < _MAX_INTEGER:
                self._slots[at + slot] = int(size)
                flags |= flag
        return flags


def last_recorded_step(folder: str, run: str, attempt: int) -> int | None:
    """Return the last step that an earlier follower of this run and attempt wrote, None where its rings are gone.

    Each step must reach Prometheus once, so it is not written again.
    """
    steps = [_last_step(data) for description, data in _read_rings(folder, run) if description["attempt"] == attempt]
    return max((step for step in steps if step is not None), default=None)


def attempt_of_file(folder: str, run: str, file: str, default: int) -> int:
    """Return the attempt in which a file of the run's log begins, at least ``default``.

    It is the one that an earlier follower recorded. A file that no follower has read was made by a rotation meanwhile:
    it continues the last attempt.
    """
    descriptions = [description for description, _ in _read_rings(folder, run)]
    recorded = [int(d.get("log_attempt") or 0) for d in descriptions if file and d.get("log_file") == file]
    return max([default, *(recorded[:1] or [d["attempt"] for d in descriptions])])


def active_ring(folder: str, run: str) -> str | None:
    """Return the path of the ring that another follower of this run is writing now, None without one."""
    for path in _rings_of(folder, run):
        try:
            with path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return str(path)
        except OSError:
            continue  # removed meanwhile, or another user's
    return None


def _prefix(run: str) -> str:
    return f"{safe_name(run)}.{_MARK}."


def _rings_of(folder: str, run: str) -> Iterator[Path]:
    return Path(folder).glob(f"{_prefix(run)}*{ring.SUFFIX}")


def _read_rings(folder: str, run: str) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Yield the description and the content of each ring that a follower of this run wrote."""
    for path in _rings_of(folder, run):
        with contextlib.suppress(OSError, ValueError, struct.error):
            data = path.read_bytes()
            (length,) = struct.unpack_from("<q", data, 8 * ring.META_LENGTH_SLOT)
            description = json.loads(data[ring.META_OFFSET : ring.META_OFFSET + length])
            same_run = isinstance(description, dict) and description.get("run") == run
            if same_run and isinstance(description.get("attempt"), int):
                yield description, data


def _last_step(data: bytes) -> int | None:
    (magic,), (count,) = struct.unpack_from("<q", data), struct.unpack_from("<q", data, 8 * ring.COUNT_SLOT)
    at = ring.HEADER_BYTES + ((count - 1) % ring.CAPACITY) * ring.RECORD_BYTES + 8 * ring.STEP
    if magic != ring.MAGIC or count <= 0 or at + 8 > len(data):
        return None
    return int(struct.unpack_from("<q", data, at)[0])
