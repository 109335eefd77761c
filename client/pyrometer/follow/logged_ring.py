"""A ring (:mod:`pyrometer.ring`) written from a log: a record per line, which may stand for many steps."""

from __future__ import annotations

import fcntl
import json
import os
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyrometer import _writer, ring
from pyrometer.follow.steps import Timed

# In a ring's name, where a rank's has its number: no rank is called that.
_MARK = "log"
# Beyond it a number is no longer exact in a sample.
_LARGEST = 1 << 53


class LoggedRing:
    """One attempt of a run, as its log tells it.

    Args:
        folder: of the rings.
        meta: the run's description, as :func:`pyrometer.start` writes it; ``source`` says that it is a log.
    """

    def __init__(self, folder: str, meta: Mapping[str, Any]) -> None:
        name = f"{_prefix(str(meta['run']))}{os.getpid()}.{time.monotonic_ns()}"
        mapping, self._fd, self.path = _writer.create(folder, name, json.dumps(meta).encode())
        self._slots = memoryview(mapping).cast("q")
        self._doubles = memoryview(mapping).cast("d")
        self._count = 0

    def append(self, timed: Timed, end: int, tokens: float, flops: float, tags: frozenset[str]) -> None:
        """A line: ``end`` in CLOCK_MONOTONIC ns; tokens and FLOPs of all its steps, 0 where unknown."""
        seconds, slots = (timed.seconds or 0.0) * timed.steps, self._slots
        at = ring.FIRST_RECORD_SLOT + (self._count % ring.CAPACITY) * ring.RECORD_SLOTS
        self._count += 1
        slots[at + ring.SEQUENCE] = self._count
        slots[at + ring.START] = end - int(seconds * 1e9)
        slots[at + ring.END] = end
        slots[at + ring.STEPS], slots[at + ring.STEP] = timed.steps, timed.logged.step
        slots[at + ring.FLAGS] = self._values(at, timed, tokens, flops) | sum(ring.TAG_BITS[tag] for tag in tags)
        slots[ring.STEP_TOTAL_SLOT] += int(seconds * 1e9)
        slots[ring.STEPS_EXTRA_SLOT] += timed.steps - 1
        slots[ring.TOKENS_EXTRA_SLOT] += int(tokens)
        self._doubles[ring.FLOPS_EXTRA_SLOT] += flops
        slots[ring.COUNT_SLOT] = self._count  # after all of it: a record below the count is whole
        slots[ring.STEP_STARTED_SLOT] = end  # a ring's age counts from here; not later than END: no step is under way

    def close(self, *, well: bool) -> None:
        """The attempt has ended; ``well``: or its silence is no hang, at least."""
        if well:
            self._slots[ring.STATE_SLOT] = ring.CLOSED
        os.close(self._fd)

    def _values(self, at: int, timed: Timed, tokens: float, flops: float) -> int:
        """Put what the line says into the record; returns the flags of what is there."""
        said, doubles, flags = timed.logged, self._doubles, ring.FLAG_STEPS
        reported = None if said.teraflops is None else said.teraflops * 1e12
        for place, flag, value in (
            (ring.LOSS, ring.FLAG_LOSS, said.loss),
            (ring.GRAD_NORM, ring.FLAG_GRAD_NORM, said.grad_norm),
            (ring.FLOPS, ring.FLAG_FLOPS, flops or None),
            (ring.REPORTED_FLOPS, ring.FLAG_REPORTED_FLOPS, reported),
            (ring.REPORTED_MFU, ring.FLAG_REPORTED_MFU, said.mfu),
        ):
            if value is not None:
                doubles[at + place] = value
                flags |= flag
        for place, flag, size in (
            (ring.TOKENS, ring.FLAG_TOKENS, tokens),
            (ring.GLOBAL_BATCH_SIZE, ring.FLAG_GLOBAL_BATCH_SIZE, said.samples),
            (ring.SEQUENCE_LENGTH, ring.FLAG_SEQUENCE_LENGTH, said.sequence),
        ):
            if size and size < _LARGEST:
                self._slots[at + place] = int(size)
                flags |= flag
        return flags


def last_step(folder: str, run: str, attempt: int) -> int | None:
    """The last step that an earlier follower of this run and attempt wrote; None where there is no trace of one.

    What it wrote is not to be written again: each step reaches Prometheus once.
    """
    found = (_last_of(path, run, attempt) for path in Path(folder).glob(f"{_prefix(run)}*{ring.SUFFIX}"))
    return max((step for step in found if step is not None), default=None)


def attempt_at(folder: str, run: str, file: str, otherwise: int) -> int:
    """The attempt in which a file of the run's log begins.

    As an earlier follower found it. A file that none has seen is what a rotation made, while nobody followed: it goes
    on with the last attempt. ``otherwise`` where there is no trace of one, or later.
    """
    metas = [found for path in Path(folder).glob(f"{_prefix(run)}*{ring.SUFFIX}") if (found := _meta_of(path, run))]
    seen: list[int] = [meta["log_attempt"] for meta in metas if file and meta.get("log_file") == file]
    return max([otherwise, *(seen[:1] or [meta["attempt"] for meta in metas])])


def being_written(folder: str, run: str) -> str | None:
    """The ring that another follower of this run is writing now."""
    for path in Path(folder).glob(f"{_prefix(run)}*{ring.SUFFIX}"):
        try:
            with path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return str(path)
        except OSError:
            continue  # gone since, or somebody else's
    return None


def _prefix(run: str) -> str:
    safe = "".join(c if (c.isascii() and c.isalnum()) or c in "-_" else "_" for c in run)[:64]
    return f"{safe}.{_MARK}."


def _meta_of(path: Path, run: str) -> dict[str, Any] | None:
    try:
        data = path.read_bytes()[: ring.HEADER_BYTES]
        (length,) = struct.unpack_from("<q", data, 8 * ring.META_LENGTH_SLOT)
        meta = json.loads(data[ring.META_OFFSET : ring.META_OFFSET + length])
    except (OSError, ValueError, struct.error):
        return None
    known = isinstance(meta, dict) and meta.get("run") == run
    return meta if known and all(isinstance(meta.get(key), int) for key in ("attempt", "log_attempt")) else None


def _last_of(path: Path, run: str, attempt: int) -> int | None:
    try:
        data = path.read_bytes()
        magic, _created, _pid, length = struct.unpack_from("<4q", data)
        meta = json.loads(data[ring.META_OFFSET : ring.META_OFFSET + length])
        (count,) = struct.unpack_from("<q", data, 8 * ring.COUNT_SLOT)
        at = ring.HEADER_BYTES + ((count - 1) % ring.CAPACITY) * ring.RECORD_BYTES
        (step,) = struct.unpack_from("<q", data, at + 8 * ring.STEP)
    except (OSError, ValueError, struct.error):
        return None
    ours = magic == ring.MAGIC and isinstance(meta, dict) and (meta.get("run"), meta.get("attempt")) == (run, attempt)
    return int(step) if ours and count > 0 else None
