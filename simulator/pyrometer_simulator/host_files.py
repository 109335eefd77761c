"""The files of a healthy host beside its PCI devices: CPUs, memory, disks, mounts, processes.

::

    files = HostFiles(tree.sysfs, tree.procfs)
    files.mount("/data", "nfs4")
    files.run("slurmd")
    files.run("python", state="D", pid=4711)

File systems answer what :class:`FileSystems` says: its ``statvfs`` takes the place of ``os.statvfs``.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

CPUS = 4
BLOCKS = 1_000_000


@dataclass
class SimulatedStatFs:
    """A file system's sizes: 1,000,000 blocks of 1 MiB, and as many files."""

    f_frsize: int = 1 << 20
    f_bavail: int = 600_000
    f_ffree: int = 900_000
    f_blocks: int = BLOCKS
    f_files: int = BLOCKS

    @property
    def f_bfree(self) -> int:
        """Free blocks; none are reserved for root."""
        return self.f_bavail


class FileSystems:
    """File systems, as statvfs shows them.

    Attributes:
        sizes: by mount point, where they differ from those of a healthy one.
        hanging: mount points that never answer, until :meth:`release`.
        errors: mount points that answer with an error of this number.
    """

    def __init__(self, hanging: Collection[str] = (), full: Collection[str] = ()) -> None:
        self.sizes = {point: SimulatedStatFs(f_bavail=1000) for point in full}
        self.hanging = set(hanging)
        self.errors: dict[str, int] = {}
        self._released = threading.Event()

    def statvfs(self, path: str) -> SimulatedStatFs:
        """Answer for a file system; wait until :meth:`release` where it hangs.

        Raises:
            OSError: the file system is to fail.
        """
        if path in self.hanging:
            self._released.wait()
        if path in self.errors:
            raise OSError(self.errors[path], os.strerror(self.errors[path]), path)
        return self.sizes.get(path, SimulatedStatFs())

    def release(self) -> None:
        """Let whatever hangs return."""
        self._released.set()


class HostFiles:
    """Files under ``sysfs`` and ``procfs`` that a healthy host has; ``disks`` is what its file systems answer."""

    def __init__(self, sysfs: Path, procfs: Path) -> None:
        self.sysfs, self.procfs = sysfs, procfs
        self.disks = FileSystems()
        self._mounts: dict[str, str] = {}
        self._numbers = itertools.count(1000)
        self.write("sys", "devices/system/cpu/online", f"0-{CPUS - 1}")
        self.write("sys", "devices/system/cpu/present", f"0-{CPUS - 1}")
        for cpu in range(CPUS):
            self.write("sys", f"devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor", "performance")
        self.write("sys", "devices/system/clocksource/clocksource0/current_clocksource", "tsc")
        for controller in range(2):
            for kind in ("ue", "ce"):
                self.write("sys", f"devices/system/edac/mc/mc{controller}/{kind}_count", "0")
        self.write("sys", "class/nvme/nvme0/state", "live")
        self.write("sys", "class/nvme/nvme1/state", "live")
        self.write("sys", "module/nvidia/version", "")
        self.write("sys", "module/nvidia_peermem/version", "")
        self.write("proc", "sys/kernel/numa_balancing", "0")
        self.write("proc", "meminfo", "MemTotal:       2113929216 kB\nHugePages_Total:    1024")
        self.write("proc", "uptime", "86400.00 1000000.00")
        self.write("proc", "mdstat", "md0 : active raid1 nvme1n1p2[1] nvme0n1p2[0]\n      937560960 blocks [2/2] [UU]")
        self.mount("/", "ext4")
        self.mount("/dev/shm", "tmpfs")  # noqa: S108
        self.run("systemd", pid=1)
        self.run("kthreadd", pid=2, parent=0)
        for name in ("containerd", "slurmd"):
            self.serve(name)

    def write(self, tree: str, name: str, text: str) -> None:
        """Write a file; ``tree`` is ``sys`` or ``proc``."""
        path = (self.sysfs if tree == "sys" else self.procfs) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n", encoding="utf-8")

    def mount(self, point: str, kind: str, *, read_only: bool = False) -> None:
        """Mount a file system, or mount it again."""
        options = "ro" if read_only else "rw"
        self._mounts[point] = f"36 35 8:0 / {point} rw,relatime shared:1 - {kind} device {options}"
        self._write_mounts()

    def run(self, name: str, *, state: str = "S", pid: int = 0, parent: int = 1) -> int:
        """Add a process; return its number."""
        pid = pid or next(self._numbers)
        fields = [state, str(parent), *["0"] * 17, str(100 * pid), "0"]
        self.write("proc", f"{pid}/stat", f"{pid} ({name[:15]}) {' '.join(fields)}")
        return pid

    def serve(self, name: str, *, cgroup: str = "", uid: int = 0) -> int:
        """Add a process that is root's and a unit of the system, unless these say otherwise; return its number."""
        pid = self.run(name)
        self.write("proc", f"{pid}/cgroup", f"0::{cgroup or f'/system.slice/{name}.service'}")
        self.write("proc", f"{pid}/status", f"Name:\t{name}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}")
        return pid

    def end(self, pid: int) -> None:
        """Take a process away."""
        for name in ("stat", "cgroup", "status"):
            (self.procfs / str(pid) / name).unlink(missing_ok=True)
        if not any((self.procfs / str(pid)).iterdir()):
            (self.procfs / str(pid)).rmdir()

    def pid_of(self, name: str) -> int:
        """Return the number of the process with this name.

        Raises:
            LookupError: there is none.
        """
        for path in self.procfs.glob("*/stat"):
            if f"({name[:15]})" in path.read_text(encoding="utf-8"):
                return int(path.parent.name)
        raise LookupError(name)

    def _write_mounts(self) -> None:
        self.write("proc", "1/mountinfo", "\n".join(self._mounts.values()))
