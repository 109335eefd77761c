"""Read a process from ``<procfs>/<pid>/stat`` (proc(5)), for which the kernel takes no lock of the process itself.

A line: ``4711 (python) D 1 4711 4711 0 -1 4194560 ... 123456 ...``; the name, up to 15 bytes, may hold
spaces and brackets.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class ProcStat(NamedTuple):
    """The fields that we use: state is ``R``, ``S``, ``D``, ``Z``, ``T``, ...; started is in clock ticks since boot."""

    pid: int
    name: str
    state: str
    parent: int
    group: int
    started: int


def read_stat(procfs: Path | str, pid: int | str) -> ProcStat:
    """Return a process; ``pid`` may be ``self``.

    Raises:
        OSError: there is no such process.
        ValueError: the line has an unexpected format.
    """
    with open(f"{procfs}/{pid}/stat", encoding="utf-8", errors="replace") as file:
        head, _, rest = file.read().rpartition(")")
    fields = rest.split(None, 20)
    if len(fields) < 20:
        raise ValueError(f"{procfs}/{pid}/stat has {len(fields)} fields after the name, not 20 or more")
    number, _, name = head.partition(" (")
    return ProcStat(int(number), name, fields[0], int(fields[1]), int(fields[2]), int(fields[19]))
