"""The kernel's log as a file or pipe, in the format of ``/dev/kmsg``: messages of drivers about failing hardware.

The lines are those of the drivers' sources: the open NVIDIA kernel modules 595.45.04 for GPUs and NVSwitches, Linux
6.8 for the rest.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

ERROR, WARNING, INFO = 3, 4, 6


class KernelLog:
    """Append to ``path``; create a plain file if needed, and continue the numbering of an existing one."""

    def __init__(self, path: Path, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.path = path
        self._monotonic = monotonic
        self.sequence = 0
        """The sequence number of the next record."""
        if path.is_file():
            numbers = [int(line.split(",")[1]) for line in path.read_text().splitlines() if line[:1].isdecimal()]
            self.sequence = max(numbers, default=-1) + 1
        elif not path.exists():
            path.touch()

    def write(self, text: str, level: int = ERROR) -> None:
        """Write one record; line breaks in it are escaped as the kernel does."""
        escaped = "".join(
            c if " " <= c <= "~" and c != "\\" else "".join(f"\\x{b:02x}" for b in c.encode()) for c in text
        )
        record = f"{level},{self.sequence},{int(self._monotonic() * 1e6)},-;{escaped}\n"
        self.sequence += 1
        # One non-blocking write: readers see whole records, and a pipe without a reader blocks nobody.
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK)
        try:
            os.write(descriptor, record.encode())
        finally:
            os.close(descriptor)

    def xid(
        self,
        pci: str,
        xid: int,
        message: str,
        *,
        pid: int | None = None,
        name: str = "python",
        instances: tuple[int, int] | None = None,
        caused_by: int | None = None,
    ) -> None:
        """Write an Xid of the GPU at ``pci`` (NVML's or the kernel's spelling) and of its MIG ``instances``."""
        where = f"PCI:{_short(pci)}" + (f" GPU-I:{instances[0]:02} GPU-CI:{instances[1]:02}" if instances else "")
        process = f"pid={pid}, name={name}, " if pid is not None else ""
        cause = f" caused by previous Xid {caused_by}" if caused_by is not None else ""
        self.write(f"NVRM: Xid ({where}): {xid}, {process}{message}{cause}")

    def fallen_off_bus(self, pci: str, *, with_xid: bool = True) -> None:
        """Write that a GPU has fallen off the bus; the driver does so with an Xid or without."""
        if with_xid:
            self.xid(pci, 79, "GPU has fallen off the bus.", pid=1234)
        self.write(f"NVRM: GPU {_short(pci)}.0: GPU has fallen off the bus.")

    def not_responding(self, pci: str) -> None:
        """Write the lines that the driver prints for each attempt to open such a GPU."""
        self.write(f"NVRM: The NVIDIA GPU {_short(pci)}.0\nNVRM: (PCI ID: 10de:2330) installed in this system has")
        self.write("NVRM: fallen off the bus and is not responding to commands.")

    def recovery_action(self, pci: str, action: str, number: int) -> None:
        """Write Xid 154: ``None`` (0), ``GPU Reset Required`` (1), ``Node Reboot Required`` (2), ..."""
        self.xid(pci, 154, f"GPU recovery action changed from 0x0 (None) to 0x{number:x} ({action})")

    def sxid(self, switch: int, pci: str, sxid: int, text: str, *, fatal: bool, link: int | None = None) -> None:
        """Write an NVSwitch's error: a head line and two lines of details."""
        head = f"nvidia-nvswitch{switch}: SXid (PCI:{pci}): {sxid:05}, "
        where = f"Link {link:02} " if link is not None else ""
        self.write(f"{head}{'Fatal' if fatal else 'Non-fatal'}, {where}{text}")
        self.write(f"{head}Severity {int(fatal)} Engine instance {link or 0:02} Sub-engine instance 00")
        self.write(head + "Data {0x50610002, 0x10100030, 0x00000000, 0x10100030, 0x00000000, 0x00000000}")

    def oom_kill(self, pid: int, name: str) -> None:
        """Write that the kernel killed a process for lack of memory."""
        self.write(
            f"Memory cgroup out of memory: Killed process {pid} ({name}) total-vm:1024kB, anon-rss:512kB, UID:1000"
        )

    def truncate(self) -> None:
        """Empty the file, as ``truncate -s 0`` does."""
        self.path.write_text("")

    def rotate(self) -> None:
        """Replace the file by a new one."""
        self.path.rename(self.path.with_name(f"{self.path.name}.1"))
        self.path.touch()


def _short(pci: str) -> str:
    """Return ``00000000:18:00.0`` as the driver prints it in an Xid, ``0000:18:00``."""
    domain, bus, device = pci.lower().split(":")
    return f"{domain[-4:]}:{bus}:{device.partition('.')[0]}"
