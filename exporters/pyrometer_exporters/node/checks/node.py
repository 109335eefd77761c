"""The node as checks see it: its files, its GPUs, what is expected of it, and the limits."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from pyrometer_exporters.node.checks.processes import Process, read_processes


class Gpus(Protocol):
    """Asks the driver, once; see ``gpus.py``."""

    def __call__(self, node: Node) -> Any:  # noqa: ANN401  GpuView, whose module loads the driver's binding
        """Return what the driver says of all GPUs; takes a few seconds at most."""
        ...


class StatFs(Protocol):
    """The part of ``os.statvfs_result`` that is used."""

    @property
    def f_blocks(self) -> int:
        """The size in blocks."""
        ...

    @property
    def f_bfree(self) -> int:
        """The free blocks."""
        ...

    @property
    def f_bavail(self) -> int:
        """The free blocks for everybody."""
        ...

    @property
    def f_files(self) -> int:
        """The size in inodes."""
        ...

    @property
    def f_ffree(self) -> int:
        """The free inodes."""
        ...


@dataclass(frozen=True)
class Paths:
    """Where the node's files are."""

    sysfs: Path = Path("/sys")
    procfs: Path = Path("/proc")
    rootfs: Path = Path("/")
    kmsg: Path = Path("/dev/kmsg")


class Expected:
    """The expectations of a node: stated in the configuration, or else learned from its last healthy day."""

    def __init__(self, stated: Mapping[str, Any], learned: Mapping[str, Any]) -> None:
        self.stated = stated
        self.learned = learned

    def get(self, key: str) -> Any:  # noqa: ANN401  its type is the key's, see config.py and the facts of each check
        """Return what is stated, else what was learned, else None."""
        return self.stated.get(key, self.learned.get(key))

    def how(self, key: str) -> str:
        """Return in words where an expectation comes from."""
        return "stated" if key in self.stated else "on its last healthy day"


def kernel_clock_state() -> int | None:
    """Return adjtimex's verdict on the kernel's clock; asking changes nothing and needs no right."""
    import ctypes  # noqa: PLC0415  in the process of the checks only

    structure = ctypes.create_string_buffer(512)  # struct timex has 208 bytes; modes = 0 asks
    state = ctypes.CDLL(None).adjtimex(structure)
    return int(state) if state >= 0 else None


@dataclass
class Node:
    """One look at a node.

    Attributes:
        paths: where its files are.
        expected: what it should have.
        limits: thresholds by check.
        earlier: what the look before this one kept.
        ask_gpus: asks the driver.
        statvfs: asks a file system; may hang.
        boottime: seconds since the boot.
        wall: seconds since the epoch.
        clock_state: the kernel's verdict on its clock, as adjtimex(2) returns it; None where it can't be asked.
    """

    paths: Paths
    expected: Expected
    limits: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    earlier: Mapping[str, Any] = field(default_factory=dict)
    ask_gpus: Gpus | None = None
    statvfs: Callable[[str], StatFs] = os.statvfs
    boottime: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME)
    wall: Callable[[], float] = time.time
    clock_state: Callable[[], int | None] = kernel_clock_state

    def limit(self, check: str, name: str) -> float:
        """Return a threshold of a check."""
        return self.limits[check][name]

    def text(self, path: Path) -> str | None:
        """Return the text of a small file without its line end; None where it can't be read."""
        try:
            return path.read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return None

    def number(self, path: Path) -> int | None:
        """Return the number in a small file; None where there is none."""
        text = self.text(path)
        try:
            return int(text, 0) if text else None
        except ValueError:
            return None

    def names(self, folder: Path) -> list[str]:
        """Return the names in a folder, in order; none where it doesn't exist."""
        try:
            return sorted(entry.name for entry in folder.iterdir())
        except OSError:
            return []

    @cached_property
    def processes(self) -> tuple[Process, ...]:
        """All processes of the node, listed once."""
        return read_processes(self.paths.procfs)

    @cached_property
    def gpus(self) -> Any:  # noqa: ANN401  see Gpus
        """The driver's answers, asked once."""
        if self.ask_gpus is None:
            raise RuntimeError("this run doesn't query the driver")
        return self.ask_gpus(self)
