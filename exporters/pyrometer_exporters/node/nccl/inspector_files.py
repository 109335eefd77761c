"""Read the two kinds of files that NCCL's Inspector writes, and RCCL's, its twin for AMD.

``nccl_inspector_metrics_<uuid of the GPU>.prom``, written again and again, in Prometheus' text::

    nccl_bus_bandwidth_gbs{version="v5.1",slurm_job_id="4711",node="gpu-001",gpu="GPU5",comm_name="DP Group 0",
        n_nodes="4",nranks="32",collective="AllReduce",message_size="134-135MB",algo_proto="RING_SIMPLE"} 350.2
    nccl_collective_exec_time_microseconds{...the same...} 740.1

``<host>-pid<pid>.log``, which grows: an object for each collective. Before version 4.3 each has its header; since then
a line with the header and ``dump_stats`` comes before those that belong to it::

    {"header": {"id": "0x7f8c496ae9f661", "rank": 21, "n_ranks": 32, "nnodes": 4}, "metadata": {"pid": 1639453, ...},
     "coll_perf": {"coll": "AllReduce", "coll_msg_size_bytes": 268435456, "coll_exec_time_us": 1407,
                   "coll_busbw_gbs": 350.2, ...}}

Files may be torn: they are written in place, while they are read.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

BYTES_PER_GB = 1e9  # NCCL's GB/s are decimal
_KIB, _MIB, _GIB = 1 << 10, 1 << 20, 1 << 30
# A job's messages have some dozen sizes; a factor of 16 keeps alike what is alike in bandwidth.
_CLASSES = (
    (0, "0-64KiB"), (64 * _KIB, "64KiB-1MiB"), (_MIB, "1-16MiB"), (16 * _MIB, "16-256MiB"),
    (256 * _MIB, "256MiB-4GiB"), (4 * _GIB, "4GiB+"),
)  # fmt: skip
SIZE_CLASSES = tuple(name for _, name in _CLASSES)

_PROM_NAME = re.compile(r"nccl_inspector_metrics_([\w.-]{1,64})\.prom")
_LOG_NAME = re.compile(r".{1,256}-pid(\d{1,10})\.log")
_LINE = re.compile(r"(nccl_\w{1,64})\{([^{}]{1,2048})\} (\S{1,32})")
_LABEL = re.compile(r'(\w{1,32})="([^"]{0,256})"')
_SIZE = re.compile(r"(\d{1,4})(?:-\d{1,4})?(B|KB|MB|GB|TB)")
_GPU = re.compile(r"GPU(\d{1,4})")
_WORD = re.compile(r"[A-Za-z]{1,32}")
_BANDWIDTHS = frozenset(("nccl_bus_bandwidth_gbs", "nccl_p2p_bus_bandwidth_gbs"))
_TIMES = frozenset(("nccl_collective_exec_time_microseconds", "nccl_p2p_exec_time_microseconds"))
_POWERS = {unit: 1024**power for power, unit in enumerate(("B", "KB", "MB", "GB", "TB"))}
_MOST_RANKS = 1 << 24


class Kind(NamedTuple):
    """A kind of operations that can be compared: ranks and nodes of the communicator, operation, size class."""

    ranks: int
    nodes: int
    collective: str
    size_class: str


@dataclass
class Writer:
    """A GPU or a process that writes a file, as far as the file identifies it; empty where it doesn't."""

    job_id: str = ""
    gpu: str = ""
    rank: str = ""
    pid: int = -1
    names: dict[int, set[str]] = field(default_factory=dict)
    """Names of its communicators by their number of ranks."""


@dataclass
class Timings:
    """Operations of a writer, in sums from which means are made: seconds, and bytes on the bus in that time."""

    sums: dict[Kind, tuple[float, float, int]] = field(default_factory=dict)

    def add(self, kind: Kind, seconds: float, bandwidth: float) -> None:
        """Add an operation; ``bandwidth`` in bytes per second. One whose figures make no sense is left out."""
        if 0 < seconds < 1e6 and 0 < bandwidth < 1e15:
            total, moved, number = self.sums.get(kind, (0.0, 0.0, 0))
            self.sums[kind] = total + seconds, moved + seconds * bandwidth, number + 1

    def means(self) -> Iterator[tuple[Kind, float, float]]:
        """Yield the mean seconds and the bandwidth of each kind."""
        for kind, (total, moved, number) in self.sums.items():
            yield kind, total / number, moved / total


def is_prometheus(name: str) -> bool:
    """Return whether a file of this name has Prometheus' text."""
    return _PROM_NAME.fullmatch(name) is not None


def pid_of_log(name: str) -> int | None:
    """Return the process that writes a file of this name; None where it is no log of the Inspector."""
    match = _LOG_NAME.fullmatch(name)
    return int(match[1]) if match else None


def size_class(size: int) -> str:
    """Return the class of a message of so many bytes.

    >>> size_class(64 * 1024), size_class(268435456)
    ('64KiB-1MiB', '256MiB-4GiB')
    """
    lower = [name for (least, name), (most, _) in pairwise((*_CLASSES, (1 << 63, ""))) if least <= size < most]
    return lower[0] if lower else SIZE_CLASSES[-1]


def read_prometheus(text: str, writer: Writer) -> tuple[Timings, bool]:
    """Return the timings of a file, and whether it is whole; what a torn end has lost is left out."""
    values: dict[str, dict[str, float]] = {}
    whole = text.endswith("\n")
    for line in text.splitlines()[: None if whole else -1]:
        match = _LINE.fullmatch(line)
        if match and (match[1] in _BANDWIDTHS or match[1] in _TIMES):
            with contextlib.suppress(ValueError):
                values.setdefault(match[2], {})["bw" if match[1] in _BANDWIDTHS else "us"] = float(match[3])
    timings = Timings()
    for text_of_labels, pair in values.items():
        labels = dict(_LABEL.findall(text_of_labels))
        kind = _kind_of_labels(labels)
        if kind is not None and len(pair) == 2:
            timings.add(kind, pair["us"] / 1e6, pair["bw"] * BYTES_PER_GB)
            _describe(writer, labels, kind)
    return timings, whole


def _kind_of_labels(labels: Mapping[str, str]) -> Kind | None:
    name = labels.get("collective") or labels.get("p2p_operation") or ""
    ranks, nodes = labels.get("nranks", ""), labels.get("n_nodes", "")
    size = _size(labels)
    if not _WORD.fullmatch(name) or size is None or not (ranks + nodes).isdecimal() or len(ranks + nodes) > 14:
        return None
    return Kind(int(ranks or 0), int(nodes or 0), name, size_class(size))


def _size(labels: Mapping[str, str]) -> int | None:
    exact = labels.get("message_size_bytes", "")
    if exact.isdecimal() and len(exact) < 16:
        return int(exact)
    match = _SIZE.fullmatch(labels.get("message_size", ""))
    return int(match[1]) * _POWERS[match[2]] if match else None


def _describe(writer: Writer, labels: Mapping[str, str], kind: Kind) -> None:
    gpu = _GPU.fullmatch(labels.get("gpu", ""))
    writer.gpu = gpu[1] if gpu else writer.gpu
    job, rank = labels.get("slurm_job_id", ""), labels.get("world_rank", "")
    writer.job_id = job if re.fullmatch(r"[\w.-]{1,64}", job) and job != "unknown" else writer.job_id
    writer.rank = rank if re.fullmatch(r"\d{1,7}", rank) else writer.rank
    _name(writer, kind.ranks, labels.get("comm_name", ""))


def _name(writer: Writer, ranks: int, name: object) -> None:
    """Keep a communicator's name, without the number that tells those of one kind apart (``DP Group 0``)."""
    text = re.sub(r"[\W_]*\d+$", "", name[:64]) if isinstance(name, str) else ""
    names = writer.names.setdefault(ranks, set())
    if text and text != "unknown" and text.isprintable() and len(names) < 4:
        names.add(text)


class LogReader:
    """Reads what a log has grown by; the latest header is of the lines after it."""

    def __init__(self, pid: int) -> None:
        self.writer = Writer(pid=pid)
        self._header: dict[str, Any] = {}
        self._largest = 0

    def read(self, data: bytes) -> Timings:
        """Return the timings of these whole lines; lines that can't be read are left out."""
        timings = Timings()
        for line in data.splitlines():
            with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
                self._read_line(json.loads(line), timings)
        return timings

    def _read_line(self, value: dict[str, Any], timings: Timings) -> None:
        header = value.get("header")
        if isinstance(header, dict):
            self._header = header
        for prefix, found in (("coll", value.get("coll_perf")), ("p2p", value.get("p2p_perf"))):
            if isinstance(found, dict):
                kind = self._kind(str(found[prefix]), int(found[f"{prefix}_msg_size_bytes"]))
                seconds, bandwidth = float(found[f"{prefix}_exec_time_us"]), float(found[f"{prefix}_busbw_gbs"])
                if kind is not None and math.isfinite(seconds) and math.isfinite(bandwidth):
                    timings.add(kind, seconds / 1e6, bandwidth * BYTES_PER_GB)

    def _kind(self, name: str, size: int) -> Kind | None:
        ranks, nodes = int(self._header["n_ranks"]), int(self._header["nnodes"])
        if not _WORD.fullmatch(name) or not 0 < ranks < _MOST_RANKS or not 0 < nodes < _MOST_RANKS or size < 0:
            return None
        if ranks >= self._largest:  # the rank in the largest communicator is the job's
            self._largest, self.writer.rank = ranks, str(int(self._header["rank"]))
        _name(self.writer, ranks, self._header.get("comm_name"))
        return Kind(ranks, nodes, name, size_class(size))
