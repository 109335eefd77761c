"""Bandwidth and time of collectives, from the files of NCCL's Inspector: bounded series, whatever the job.

The worst, the median and the best of this node's ranks are served for each size of communicator, collective and size
class; a rank of its own only where it departs from the median. Who arrives last at a collective waits for nobody,
so that its own one is the shortest.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from pyrometer_exporters.framework.metrics import Down, Families, Sample
from pyrometer_exporters.framework.outcome import reason_of
from pyrometer_exporters.framework.shared_folder import AHEAD_SECONDS, Listed, SharedFolder
from pyrometer_exporters.node.nccl.families import JOB
from pyrometer_exporters.node.nccl.inspector_files import (
    Kind,
    LogReader,
    Timings,
    Writer,
    is_prometheus,
    pid_of_log,
    read_prometheus,
)
from pyrometer_exporters.node.nccl.local_node import LocalNode

READ_SECONDS = 30.0
"""How often the files are read; the Inspector's own shortest interval for Prometheus' text."""
STALE_SECONDS = 150.0
"""A file that was not written for so long, five of the Inspector's intervals, is of a job that has ended or hangs."""
MOST_FILES = 128
MOST_KINDS = 48
MOST_PROM_BYTES = 4 * 1024 * 1024
# A log grows by some 500 bytes for each collective; what a node can't read in time is skipped, the newest is read.
MOST_LOG_BYTES = 8 * 1024 * 1024
# A rank departs where its mean is this far from the node's median: time of straggling, not noise of a percent.
DEPARTS = 1.5
MOST_DEPARTING = 16

# fmt: off
INSPECTOR_FAMILIES = Families()
_KIND = (*JOB, "comm_ranks", "comm_nodes", "collective", "size_class")
BANDWIDTH = INSPECTOR_FAMILIES.gauge("pyrometer_nccl_bus_bandwidth_bytes_per_second",
    "Bus bandwidth of collectives by the size of their communicator and the class of their size, from the files of "
    "NCCL's Inspector; stat is worst, median or best of this node's ranks.", *_KIND, "stat")
SECONDS = INSPECTOR_FAMILIES.gauge("pyrometer_nccl_collective_seconds",
    "Mean time of a collective, waiting for other ranks included, from the files of NCCL's Inspector; stat is worst "
    "(longest), median or best of this node's ranks.", *_KIND, "stat")
RANK_BANDWIDTH = INSPECTOR_FAMILIES.gauge("pyrometer_nccl_rank_bus_bandwidth_bytes_per_second",
    "Bus bandwidth of a rank that departs from the median of its node by a factor of 1.5, in time or bandwidth.",
    *_KIND, "gpu", "rank")
RANK_SECONDS = INSPECTOR_FAMILIES.gauge("pyrometer_nccl_rank_collective_seconds",
    "Mean time of a collective on a rank that departs from the median of its node by a factor of 1.5 or more: the "
    "rank that the others wait for has the shortest.", *_KIND, "gpu", "rank")
GROUP_INFO = INSPECTOR_FAMILIES.gauge("pyrometer_nccl_group_info",
    "1; the name that the job gave its communicators of this many ranks, from the files of NCCL's Inspector.",
    *JOB, "comm_ranks", "name")
FILES = INSPECTOR_FAMILIES.gauge("pyrometer_nccl_inspector_files",
    "Files of NCCL's Inspector in --collector.nccl.inspector-directory by state: read, stale (not written for 150 s),"
    " torn (nothing whole in them yet), left_out (beyond 128, fair among users, or of "
    "a job of which the file's owner has no process).", "directory", "state")
# fmt: on


@dataclass
class _File:
    """A user's file that is followed, and what it held when it was last read."""

    uid: int
    writer: Writer
    log: LogReader | None = None
    at: int = -1
    written: float = 0.0
    timings: Timings = field(default_factory=Timings)


class _Row(NamedTuple):
    gpu: str
    rank: str
    seconds: float
    bandwidth: float


class Inspector:
    """Follows the files in some directories. Not thread-safe."""

    def __init__(self, directories: Sequence[Path], local: LocalNode) -> None:
        self._directories = [(path, SharedFolder(path, MOST_FILES)) for path in dict.fromkeys(directories)]
        self._local = local
        self._files: dict[Path, _File] = {}

    def read(self, wall: float) -> list[Sample | Down]:
        """Read what has changed; return all samples. Times are Unix seconds."""
        samples: list[Sample | Down] = []
        present: dict[Path, _File] = {}
        for directory, folder in self._directories:
            try:
                samples += self._read_directory(directory, folder, wall, present)
            except OSError as error:
                samples.append(Down(str(directory), reason_of(error), str(error)))
        self._files = present
        fresh = [file for file in present.values() if _is_fresh(file.written, wall)]
        return [*samples, *self._samples(fresh)]

    def _read_directory(
        self, directory: Path, folder: SharedFolder, wall: float, present: dict[Path, _File]
    ) -> Iterator[Sample]:
        states = dict.fromkeys(("read", "stale", "torn", "left_out"), 0)
        listed = folder.files(lambda name: is_prometheus(name) or pid_of_log(name) is not None, wall)
        fresh: dict[Path, _File] = {}
        for entry in listed:
            path = directory / entry.name
            file = self._files.get(path)
            if file is None or file.uid != entry.uid:
                file = _opened(entry)
            if not _is_fresh(entry.written, wall):
                present[path] = file  # it may go on where it stopped
                states["stale"] += 1
                continue
            with contextlib.suppress(OSError):  # its job has just ended
                _refresh(path, file)
                fresh[path] = file
        refused = self._refused(fresh)
        states["left_out"] = folder.left_out + len(refused)
        for path, file in fresh.items():
            if path not in refused:
                present[path] = file
                states["read" if file.timings.sums else "torn"] += 1
        return iter([FILES.sample(number, str(directory), state) for state, number in states.items()])

    def _refused(self, files: Mapping[Path, _File]) -> set[Path]:
        """Return the files of jobs that are not their users': anybody may write any job's number."""
        claims = {path: file for path, file in files.items() if file.writer.job_id}
        jobs = self._local.jobs_by_user() if claims else None
        if jobs is None:
            return set()
        return {path for path, file in claims.items() if file.writer.job_id not in jobs.get(file.uid, ())}

    def _samples(self, files: Iterable[_File]) -> Iterator[Sample]:
        groups: dict[tuple[str, str], dict[Kind, list[_Row]]] = {}
        names: dict[tuple[str, str], dict[int, set[str]]] = {}
        for file in files:
            writer = file.writer
            run, job_id, rank = self._local.run_of(writer.pid, file.uid)
            scheduled = writer.job_id or (self._local.job_id([writer.pid], file.uid) if writer.pid >= 0 else "")
            job = run, job_id or scheduled
            for kind, seconds, bandwidth in file.timings.means():
                row = _Row(writer.gpu, rank or writer.rank, seconds, bandwidth)
                groups.setdefault(job, {}).setdefault(kind, []).append(row)
            for ranks, given in writer.names.items():
                names.setdefault(job, {}).setdefault(ranks, set()).update(given)
        for job, kinds in groups.items():
            yield from _samples_of(job, kinds)
            for ranks, given in names[job].items():
                for name in sorted(given)[:4]:
                    yield GROUP_INFO.sample(1, *job, str(ranks), name)


def _is_fresh(written: float, wall: float) -> bool:
    return -AHEAD_SECONDS <= wall - written <= STALE_SECONDS


def _opened(entry: Listed) -> _File:
    pid = pid_of_log(entry.name)
    if pid is None:
        return _File(entry.uid, Writer())
    log = LogReader(pid)
    return _File(entry.uid, log.writer, log)


def _refresh(path: Path, file: _File) -> None:
    """Read a file's new content; what was read before stays where there is none, or it is torn."""
    # The folder is anyone's to write to: no link, no pipe.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != file.uid:
            return
        file.written = status.st_mtime
        if file.log is None:
            text = os.pread(descriptor, MOST_PROM_BYTES, 0).decode("utf-8", "replace")
            timings, whole = read_prometheus(text, file.writer)
            if whole or len(timings.sums) >= len(file.timings.sums):
                file.timings = timings
        else:
            _refresh_log(descriptor, status.st_size, file, file.log)
    finally:
        os.close(descriptor)


def _refresh_log(descriptor: int, size: int, file: _File, log: LogReader) -> None:
    if size < file.at:  # it was truncated
        file.at = 0
    start = max(file.at, 0, size - MOST_LOG_BYTES)
    data = os.pread(descriptor, MOST_LOG_BYTES, start)
    end = data.rfind(b"\n") + 1
    # A jump may land inside a line; its rest is no JSON, and is left out as such.
    timings = log.read(data[:end])
    file.at = start + end
    if timings.sums:
        file.timings = timings


def _samples_of(job: tuple[str, str], kinds: Mapping[Kind, list[_Row]]) -> Iterator[Sample]:
    from statistics import median  # noqa: PLC0415  half a megabyte, only where there are files of the Inspector

    most_time = sorted(kinds, key=lambda kind: (-sum(row.seconds for row in kinds[kind]), kind))
    for kind in most_time[:MOST_KINDS]:
        rows = kinds[kind]
        labels = (*job, str(kind.ranks), str(kind.nodes), kind.collective, kind.size_class)
        seconds, bandwidths = sorted(row.seconds for row in rows), sorted(row.bandwidth for row in rows)
        middle = _Row("", "", median(seconds), median(bandwidths))
        for name, time, bandwidth in (
            ("worst", seconds[-1], bandwidths[0]), ("median", middle.seconds, middle.bandwidth),
            ("best", seconds[0], bandwidths[-1]),
        ):  # fmt: skip
            yield SECONDS.sample(time, *labels, name)
            yield BANDWIDTH.sample(bandwidth, *labels, name)
        departing = {(row.gpu, row.rank): row for row in rows if _departs(row, middle)}
        if len(departing) <= len(rows) // 2:
            for own, row in list(departing.items())[:MOST_DEPARTING]:
                if any(own):
                    yield RANK_SECONDS.sample(row.seconds, *labels, *own)
                    yield RANK_BANDWIDTH.sample(row.bandwidth, *labels, *own)


def _departs(row: _Row, middle: _Row) -> bool:
    pairs = (row.seconds, middle.seconds), (row.bandwidth, middle.bandwidth)
    return any(max(own, usual) > DEPARTS * min(own, usual) for own, usual in pairs)
