"""The kernel's log: errors of hardware since the boot, not older than a day."""

from __future__ import annotations

import errno
import os
import re
import time
from collections import Counter
from collections.abc import Iterator
from typing import Final

from pyrometer_exporters.node.checks.check import Check, Verdict, judged, listed, unknown
from pyrometer_exporters.node.checks.node import Node
from pyrometer_exporters.node.gpu.xid.catalogue import Classes
from pyrometer_exporters.node.gpu.xid.lines import LineParser
from pyrometer_exporters.node.kernel.events import KINDS, EventReader, sxid
from pyrometer_exporters.node.kernel.kmsg import Record, no_kernel_log, parse

# A full ring of 1 MiB has some ten thousand records; more is another log, or one that grows faster than it is read.
MOST_RECORDS: Final = 50_000
MOST_SECONDS: Final = 1.0
_RECORD_BYTES: Final = 8192
MOST_CHARACTERS: Final = 120


class _NoLogError(Exception):
    """The file is no kernel's log."""


def _records(node: Node) -> Iterator[Record]:
    descriptor = os.open(node.paths.kmsg, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        wrong = no_kernel_log(node.paths.kmsg, descriptor)
        if wrong is not None:
            raise _NoLogError(wrong)
        yield from (record for line in _lines(descriptor) if (record := parse(line)) is not None)
    finally:
        os.close(descriptor)


def _lines(descriptor: int) -> Iterator[bytes]:
    """Yield lines: of the device, a record for each read; of a file, whatever is in it.

    Raises:
        TimeoutError: the log has more than is read.
    """
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
        if not data:
            break
        if time.monotonic() > until:
            raise TimeoutError
        *lines, left = (left + data).split(b"\n")
        yield from lines
    else:
        raise TimeoutError
    yield left


# After these a GPU's earlier errors are over: its driver was loaded again, or it says that no action is required.
_LOADED: Final = "NVRM: loading NVIDIA UNIX"
_RECOVERED: Final = re.compile(r"recovery action changed from \S+ \([^)]*\) to \S+ \(None\)", re.IGNORECASE)


class _Findings:
    """The errors so far; those of a GPU or an NVSwitch are critical until it is reset."""

    def __init__(self) -> None:
        self._xids, self._classes, self._events = LineParser(), Classes(), EventReader()
        self.critical: Counter[tuple[str, str]] = Counter()
        self.others: Counter[str] = Counter()

    def take(self, record: Record) -> None:
        """Note the error that a record reports."""
        if record.text.startswith(_LOADED):
            self.critical.clear()
            return
        xid = self._xids.feed(record.text)
        if xid is not None:
            if _RECOVERED.search(xid.message):
                self.critical = Counter({key: count for key, count in self.critical.items() if key[0] != xid.pci})
            elif self._classes.of(xid.xid, xid.message) == "critical":
                error = (xid.pci, f"Xid {xid.xid} of {xid.pci}")
                # The driver repeats a line without a number for each call on a lost GPU.
                self.critical[error] += xid.source != "bus_loss" or not self.critical[error]
            return
        switch = sxid(record.text)
        if switch is not None:
            if switch.fatal:
                self.critical["", f"SXid {switch.code} (fatal) of NVSwitch {switch.pci_bus_id}"] += 1
            return
        event = self._events.feed(record)
        if event is not None and (event.uncorrected or (event.is_new and KINDS[event.kind].check)):
            self.others[event.text[:MOST_CHARACTERS]] += 1


def _errors(node: Node) -> Verdict:
    findings, records, whole = _Findings(), 0, True
    try:
        oldest = node.boottime() - node.limit("kernel_errors", "hours") * 3600
        for record in _records(node):
            records += 1
            if record.of_kernel and record.seconds >= oldest:
                findings.take(record)
    except _NoLogError as error:
        return unknown(str(error))
    except TimeoutError:
        whole = False
    except OSError as error:
        return unknown(f"the kernel's log can't be read: {error.strerror}")
    if not records:
        return unknown(f"{node.paths.kmsg} has no record of the kernel's log")
    critical = [_counted(what, count) for (_, what), count in findings.critical.most_common()]
    others = [_counted(what, count) for what, count in findings.others.most_common()]
    if critical:
        return Verdict("failed", listed([*critical, *others]), severity="critical")
    if not others and not whole:
        return unknown(f"{node.paths.kmsg} is too long to be read: nothing in its first {records:,} records")
    return judged(others)


def _counted(what: str, count: int) -> str:
    return f"{count} x {what}" if count > 1 else what


CHECKS = (
    Check(
        "kernel_errors",
        "the kernel log has no hardware error since boot, within the last 24 h",
        "/dev/kmsg: critical Xids and fatal SXids (critical, until a reset), uncorrected errors of memory, CPU, PCIe "
        "and disks, file systems, network cards, lock-ups, faults of the kernel",
        "gcm check-syslogs, gpud xid and sxid, Imbue (dmesg)",
        "Look the line up in docs/reference/kernel-lines.md; its alert in docs/alerts.md says what to do.",
        _errors,
        severity="warning",
        limits={"hours": 24},
    ),
)
