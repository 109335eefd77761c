"""Ranks whose processes the kernel does not let run: stopped by a signal or a debugger, or stuck in a system call.

The others of a collective that such a rank is in wait with it in the same part of the same step, so that the ring
cannot tell them apart. ``/proc/<pid>/stat`` can (proc(5), field 3).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from pyrometer_exporters.framework.metrics import Family, Sample
from pyrometer_exporters.node.train.rank import Rank
from pyrometer_kit.proc_stat import read_stat

# Only ranks that have not moved for so long are looked at, and only a state that stays so long is served: a process
# that reads a file is in state D for moments, and a profiler stops it for milliseconds.
QUIET_SECONDS = 10.0
HALTED_SECONDS = 10.0
STATES: Mapping[str, str] = {"T": "stopped", "t": "traced", "D": "uninterruptible"}

HALTED = Family(
    "pyrometer_train_rank_halted_info",
    "gauge",
    "1; state of a process that the kernel has not let run for 10 s or more: stopped (SIGSTOP), traced (a debugger) or "
    "uninterruptible (in a system call, such as of a file system or driver that does not answer).",
    ("run", "job_id", "attempt", "rank", "state"),
)


class Halted:
    """Looks at ranks that have not moved. Not thread-safe: the collector locks around it."""

    def __init__(self, procfs: Path) -> None:
        self._procfs = procfs
        self._since: dict[str, tuple[str, float]] = {}

    def look(self, ranks: Iterable[Rank], now: float) -> None:
        """Look at the processes of ranks that have stood still, at the monotonic time ``now``."""
        since = {}
        for rank in ranks:
            letter = self._state(rank, now)
            if letter in STATES:
                before = self._since.get(rank.file.path)
                since[rank.file.path] = before if before is not None and before[0] == letter else (letter, now)
        self._since = since

    def samples(self, ranks: Iterable[Rank], now: float) -> Iterator[Sample]:
        """Yield the ranks that are halted."""
        for rank in ranks:
            letter, since = self._since.get(rank.file.path, ("", now))
            if now - since >= HALTED_SECONDS:
                yield HALTED.sample(1, *rank.labels, STATES[letter])

    def _state(self, rank: Rank, now: float) -> str:
        if rank.ended_at is not None or rank.process is None:
            return ""
        _, since = rank.position()
        if now - max(since, rank.last_end) / 1e9 < QUIET_SECONDS:
            return ""
        with contextlib.suppress(OSError, ValueError):
            return read_stat(self._procfs, rank.process.pid).state
        return ""
