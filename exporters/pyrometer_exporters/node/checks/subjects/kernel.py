"""The kernel's log: errors of hardware since the boot, not older than a day."""

from __future__ import annotations

import errno
import os
import time
from collections import Counter
from collections.abc import Iterator
from typing import Final

from pyrometer_exporters.node.checks.check import Check, Verdict, judged, unknown
from pyrometer_exporters.node.checks.node import Node
from pyrometer_exporters.node.gpu.xid.catalogue import Classes
from pyrometer_exporters.node.gpu.xid.lines import LineParser
from pyrometer_exporters.node.kernel.events import is_uncorrected, kind_of, sxid
from pyrometer_exporters.node.kernel.kmsg import Record, parse

# A full ring of 1 MiB has some ten thousand records; more is another log, or one that grows faster than it is read.
MOST_RECORDS: Final = 50_000
MOST_SECONDS: Final = 1.0
_RECORD_BYTES: Final = 8192
MOST_CHARACTERS: Final = 120


def _records(node: Node) -> Iterator[Record]:
    descriptor = os.open(node.paths.kmsg, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        yield from (record for line in _lines(descriptor) if (record := parse(line)) is not None)
    finally:
        os.close(descriptor)


def _lines(descriptor: int) -> Iterator[bytes]:
    """Yield lines: of the device, a record for each read; of a file, whatever is in it."""
    until, left = time.monotonic() + MOST_SECONDS, b""
    for _ in range(MOST_RECORDS):
        try:
            data = os.read(descriptor, _RECORD_BYTES)
        except BlockingIOError:
            break
        except OSError as error:
            if error.errno == errno.EPIPE:  # overwritten meanwhile: the next read goes on behind it
                continue
            raise
        if not data or time.monotonic() > until:
            break
        *lines, left = (left + data).split(b"\n")
        yield from lines
    yield left


def _errors(node: Node) -> Verdict:
    xids, classes = LineParser(), Classes()
    try:
        oldest = node.boottime() - node.limit("kernel_errors", "hours") * 3600
        recent = [record for record in _records(node) if record.seconds >= oldest]
    except OSError as error:
        return unknown(f"the kernel's log can't be read: {error.strerror}")
    errors = Counter(what for record in recent if (what := _error(record, xids, classes)))
    return judged([f"{count} x {what}" if count > 1 else what for what, count in errors.most_common()])


def _error(record: Record, xids: LineParser, classes: Classes) -> str:
    """Return in words what a record says is broken; empty for all others."""
    xid = xids.feed(record.text)
    if xid is not None:
        critical = classes.of(xid.xid, xid.message) == "critical"
        return f"Xid {xid.xid} of {xid.pci}" if critical else ""
    switch = sxid(record.text)
    if switch is not None:
        return f"SXid {switch.code} (fatal) of NVSwitch {switch.pci_bus_id}" if switch.fatal else ""
    kind = kind_of(record)
    if kind in ("nvme", "soft_lockup") or (kind is not None and is_uncorrected(kind, record.text)):
        return record.text[:MOST_CHARACTERS]
    return ""


CHECKS = (
    Check(
        "kernel_errors",
        "the kernel log has no hardware error since boot, within the last 24 h",
        "/dev/kmsg: critical Xids, fatal SXids, uncorrected machine checks and PCIe errors, NVMe, lockups",
        "gcm check-syslogs, gpud xid and sxid, Imbue (dmesg)",
        "Drain the node; what to do depends on the line, see docs/alerts.md.",
        _errors,
        severity="warning",
        limits={"hours": 24},
    ),
)
