"""The kernel's log as ``/dev/kmsg`` gives it: one record per read, with a sequence number that never repeats in a boot.

A record: ``3,1234,5140900123,-;NVRM: Xid (PCI:0000:18:00): 79, pid=1234, name=python, GPU has fallen off the bus.``
(priority, sequence number, microseconds since the boot, flags; text), followed by lines ``" KEY=value"`` that describe
the device. Source: the kernel's Documentation/ABI/testing/dev-kmsg.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Record(NamedTuple):
    """One message."""

    level: int
    """0 emergency, 1 alert, 2 critical, 3 error, 4 warning, ... 7 debug."""
    sequence: int
    seconds: float
    """Since the boot, by the kernel's own unadjusted clock."""
    text: str


# Newer kernels put more fields before the semicolon (``caller=T1234``), which readers have to skip. The flags are
# skipped too: they mark pieces of one line, and all that we look for is printed in one go.
_RECORD = re.compile(rb"(\d{1,10}),(\d{1,20}),(\d{1,20}),[^;\n]*;([^\n]*)")
_ESCAPED = re.compile(r"\\x([0-9a-fA-F]{2})")


def parse(line: bytes) -> Record | None:
    r"""Parse the record of a line; None for other lines, such as those about a record's device.

    A message of several lines comes as one, with its line ends and other odd bytes written as ``\x0a``.
    """
    match = _RECORD.match(line)
    if match is None:
        return None
    priority, sequence, microseconds, text = match.groups()
    return Record(int(priority) & 7, int(sequence), int(microseconds) / 1e6, _unescaped(text))


def _unescaped(text: bytes) -> str:
    plain = text.decode("utf-8", errors="replace").rstrip("\r")
    return _ESCAPED.sub(lambda byte: chr(int(byte[1], 16)), plain) if "\\x" in plain else plain
