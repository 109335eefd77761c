"""The processes of the node, by their lines in ``/proc``."""

from __future__ import annotations

import os
from pathlib import Path

from pyrometer_kit.proc_stat import ProcStat, read_stat

KTHREADD = 2


class Process(ProcStat):
    """Tell a process from the kernel's threads and from a later one with its number."""

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
    processes = (_read(procfs, name) for name in os.listdir(procfs) if name.isdecimal())  # noqa: PTH208  thousands of names
    return tuple(process for process in processes if process is not None)


def _read(procfs: Path, pid: str) -> Process | None:
    try:
        return Process(*read_stat(procfs, pid))
    except (OSError, ValueError):
        return None
