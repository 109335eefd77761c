"""Parse the lines that the NVIDIA driver writes into the kernel's log about its GPUs.

Lines, as the open kernel modules print them (src/nvidia/src/kernel/gpu/rc/kernel_rc.c):

    NVRM: Xid (PCI:0000:18:00): 79, pid=1234, name=python, GPU has fallen off the bus.
    NVRM: Xid (PCI:0000:18:00 GPU-I:05 GPU-CI:00): 31, pid=1234, name=python, Ch 00000008, intr 00000000. MMU Fault ...
    NVRM: Xid (PCI:0000:18:00): 45, pid='<unknown>', name=<unknown>, Ch 00000010 caused by previous Xid 79
    NVRM: GPU 0000:18:00.0: GPU has fallen off the bus.

Older drivers leave out the domain (``PCI:18:00``) or ``PCI:``, and write ``NVRM: GPU at 0000:18:00.0 has fallen off the
bus.``
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Source = Literal["kernel_log", "bus_loss", "nvml"]
FALLEN_OFF_BUS = 79

_PCI = r"(?P<pci>(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)"
_XID = re.compile(
    rf"NVRM: Xid \((?:PCI:)?{_PCI}(?: GPU-I:(?P<gi>\d+))?(?: GPU-CI:(?P<ci>\d+))?\): "
    r"(?P<xid>\d{1,5})(?:, (?P<rest>.*))?",
    re.DOTALL,
)
# The name may hold anything, commas and quotes as well: what follows it is told from it only by the comma.
_PROCESS = re.compile(
    r"pid=(?P<q>'?)(?P<pid>\d+|<unknown>|unknown)(?P=q)(?:, name=(?P<r>'?)(?P<name>.*?)(?P=r))?(?:, |$)", re.DOTALL
)
_PREVIOUS = re.compile(r"caused by previous Xid (\d{1,5})\b")
_LOST = re.compile(rf"NVRM: GPU (?:at )?(?:PCI:)?{_PCI}(?:: GPU)? has fallen off the bus")
_NAMED = re.compile(rf"NVRM: The NVIDIA GPU {_PCI}\b")
_NOT_RESPONDING = "fallen off the bus and is not responding"


@dataclass(frozen=True)
class XidEvent:
    """An error as one source reports it; unknown texts are empty."""

    pci: str
    """As the kernel spells it, ``0000:18:00.0``."""
    xid: int
    source: Source
    gpu_instance: str = ""
    compute_instance: str = ""
    pid: str = ""
    process: str = ""
    caused_by: str = ""
    """The Xid of which this one is a consequence, according to the driver."""
    message: str = ""


class LineParser:
    """Turns lines into events; remembers which GPU the first of three lines named."""

    def __init__(self) -> None:
        self._named: str | None = None

    def feed(self, text: str) -> XidEvent | None:
        """Return the event of the log's next message, which may have several lines; None if it has none."""
        if not text.startswith("NVRM: "):
            return None
        return _xid_event(text) or self._loss(text)

    def _loss(self, text: str) -> XidEvent | None:
        if match := _LOST.match(text):
            return _lost(match["pci"])
        if match := _NAMED.match(text):
            self._named = match["pci"]
        if self._named is None or _NOT_RESPONDING not in text:
            return None
        pci, self._named = self._named, None
        return _lost(pci)


def pci_key(pci: str) -> str:
    """Spell a PCI address in full, as the kernel does.

    >>> pci_key("18:00"), pci_key("00000000:AF:00.0")
    ('0000:18:00.0', '0000:af:00.0')
    """
    *domain, bus, device = pci.lower().split(":")
    number = int(domain[0], 16) if domain else 0
    return f"{number:04x}:{bus}:{device if '.' in device else f'{device}.0'}"


def _lost(pci: str) -> XidEvent:
    return XidEvent(pci_key(pci), FALLEN_OFF_BUS, "bus_loss", message="GPU has fallen off the bus")


def _xid_event(text: str) -> XidEvent | None:
    match = _XID.match(text)
    if match is None:
        return None
    rest = match["rest"] or ""
    process = _PROCESS.match(rest)
    pid = process["pid"] if process else ""
    name = (process["name"] or "") if process else ""
    previous = _PREVIOUS.search(rest)
    return XidEvent(
        pci=pci_key(match["pci"]),
        xid=int(match["xid"]),
        source="kernel_log",
        gpu_instance=_number(match["gi"]),
        compute_instance=_number(match["ci"]),
        pid=pid if pid.isdecimal() else "",
        process="" if "unknown>" in name or name == "unknown" else name,
        caused_by=previous[1] if previous else "",
        message=rest[process.end() :] if process else rest,
    )


def _number(digits: str | None) -> str:
    return str(int(digits)) if digits else ""
