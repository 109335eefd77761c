"""Processes by ``<procfs>/<pid>/stat``, which the kernel answers without any lock of the process itself.

A line: ``4711 (python) D 1 4711 4711 0 -1 4194560 ... 22 (start time in ticks since the boot) ...``; the name, up to 15
bytes, may hold spaces and brackets.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

KTHREADD = 2


class Process(NamedTuple):
    """A process: state is ``R``, ``S``, ``D``, ``Z``, ...; started is in clock ticks since the boot."""

    pid: int
    name: str
    state: str
    parent: int
    started: int

    @property
    def is_of_kernel(self) -> bool:
        """True for a thread of the kernel's own."""
        return KTHREADD in (self.pid, self.parent)

    @property
    def key(self) -> str:
        """Name it so that a later process with the same number is another: ``4711@123456``."""
        return f"{self.pid}@{self.started}"


def read_processes(procfs: Path) -> tuple[Process, ...]:
    """Return all processes; those that end meanwhile are left out. Raises ``OSError`` where there is no procfs."""
    found = (_read(procfs, name) for name in os.listdir(procfs) if name.isdecimal())  # noqa: PTH208  thousands of names
    return tuple(process for process in found if process is not None)


def _read(procfs: Path, pid: str) -> Process | None:
    try:
        with open(f"{procfs}/{pid}/stat", encoding="utf-8", errors="replace") as file:
            text = file.read()
        head, _, rest = text.rpartition(")")
        fields = rest.split()
        return Process(int(pid), head.partition("(")[2], fields[0], int(fields[1]), int(fields[19]))
    except (OSError, ValueError, IndexError):
        return None
