"""The kernel's log as ``/dev/kmsg`` gives it: one record per read, with a sequence number that never repeats in a boot.

A record: ``3,1234,5140900123,-;NVRM: Xid (PCI:0000:18:00): 79, pid=1234, name=python, GPU has fallen off the bus.``
(priority, sequence number, microseconds since the boot, flags; text), followed by lines ``" KEY=value"`` that describe
the device. Source: the kernel's Documentation/ABI/testing/dev-kmsg. The priority is the level and eight times the
facility, of which programs never get the kernel's (kernel/printk/printk.c, devkmsg_write).
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import NamedTuple


class Record(NamedTuple):
    """One message."""

    level: int
    """0 emergency, 1 alert, 2 critical, 3 error, 4 warning, ... 7 debug."""
    sequence: int
    seconds: float
    """Since the boot, by the kernel's own unadjusted clock."""
    text: str
    facility: int = 0
    """0 for the kernel's own messages. Those that programs write into /dev/kmsg have another: the kernel sees to it."""

    @property
    def of_kernel(self) -> bool:
        """True for what the kernel itself reports."""
        return self.facility == 0


# Newer kernels put more fields before the semicolon (``caller=T1234``), which readers have to skip. The flags are
# skipped too: they mark pieces of one line, and all that we look for is printed in one go.
_RECORD = re.compile(rb"(\d{1,10}),(\d{1,20}),(\d{1,20}),[^;\n]*;([^\n]*)")
_DEVICE = os.makedev(1, 11)
_HEAD_BYTES, _HEAD_LINES = 1 << 16, 100
_ESCAPED = re.compile(r"\\x([0-9a-fA-F]{2})")


def parse(line: bytes) -> Record | None:
    r"""Parse the record of a line; None for other lines, such as those about a record's device.

    A message of several lines comes as one, with its line ends and other odd bytes written as ``\x0a``.
    """
    match = _RECORD.match(line)
    if match is None:
        return None
    priority, sequence, microseconds, text = match.groups()
    level = int(priority)
    return Record(level & 7, int(sequence), int(microseconds) / 1e6, _unescaped(text), level >> 3)


def no_kernel_log(path: Path, descriptor: int) -> str | None:
    """Return what is wrong with a file that has no record at all; None for an empty one and for a log.

    Raises:
        OSError: it can't be read.
    """
    about = os.fstat(descriptor)
    if stat.S_ISFIFO(about.st_mode):
        return None
    if not stat.S_ISREG(about.st_mode):
        return None if about.st_rdev == _DEVICE else f"{path} is another device than the kernel's log (1:11)"
    lines = [line for line in os.pread(descriptor, _HEAD_BYTES, 0).split(b"\n")[:_HEAD_LINES] if line.strip()]
    if not lines or any(parse(line) for line in lines):
        return None
    return f"{path} is no kernel log: its lines are not such as 6,1,0,-;text; give /dev/kmsg, not the file of a syslog"


def _unescaped(text: bytes) -> str:
    plain = text.decode("utf-8", errors="replace").rstrip("\r")
    return _ESCAPED.sub(lambda byte: chr(int(byte[1], 16)), plain) if "\\x" in plain else plain
