"""Read the events out of the kernel's log: one event however many lines it has, with its kind and what it is about.

Lines of one kind that come close together belong to one event (``Kind.seconds``). Where the kernel prints them in an
order (``Line.step``), a line joins the event that the ones before it began::

    mce: [Hardware Error]: Machine check events logged                    step 1   an event
    EDAC MC1: 1 CE memory scrubbing error on CPU_SrcID#1_...              step 4   the same, and of which controller
    EDAC MC1: 1 CE memory scrubbing error on CPU_SrcID#1_...              step 4   the next one
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from pyrometer_exporters.node.kernel import catalogue
from pyrometer_exporters.node.kernel.catalogue import LINES, PCI, START, Line
from pyrometer_exporters.node.kernel.kmsg import Record

KINDS: Final = {kind.name: kind for kind in catalogue.KINDS}
UNCORRECTED_KINDS: Final = tuple(kind.name for kind in catalogue.KINDS if kind.uncorrected)
CRITICAL_LEVEL: Final = 2
_BOOT_SECONDS: Final = 120.0
# Events that may yet get another line; more at once are of a flood, and the eldest are closed.
MOST_OPEN: Final = 256

# A log of thousands of ordinary lines has to cost little: each is compared only with the few that begin as it does, and
# with those that begin with any name only if it has their words.
_COMPILED: Final = tuple((line, re.compile(line.expression)) for line in LINES)
_BY_START: Final[dict[str, list[tuple[Line, re.Pattern[str]]]]] = {}
for _row in _COMPILED:
    for _start in _row[0].starts:
        _BY_START.setdefault(_start, []).append(_row)
_OF_PROGRAMS: Final = tuple(
    (line.needle, line, expression) for line, expression in _COMPILED if line.needle and not line.of_function
)
_OF_ANY_NAME: Final = (
    *((line.needle, line, expression) for line, expression in _COMPILED if line.of_function),
    *_OF_PROGRAMS,
)

# Records of the firmware (drivers/acpi/apei/ghes.c, drivers/firmware/efi/cper.c). {3} numbers the record.
_APEI: Final = re.compile(
    r"\{(?P<record>\d+)\}\[Hardware Error\]: +(?:event severity: (?P<severity>\w+)|Error \d+, type: (?P<type>\w+)"
    rf"|section[_ ]type: (?P<section>.+)|device_id: (?P<device>{PCI})|fru_text: (?P<fru>.+))"
)
_NOT_CORRECTED: Final = ("recoverable", "fatal")
# Words of an error that was none: the firmware only informs.
_NO_ERROR: Final = ("info", "informational")
SECTIONS: Final = {  # by whether the section is of PCIe
    True: Line("pcie_aer", "drivers/firmware/efi/cper.c", "", "{3}[Hardware Error]:   section_type: PCIe error", step=2,
               repeats=True),
    False: Line("machine_check", "drivers/firmware/efi/cper.c", "", "{3}[Hardware Error]:   section_type: memory error",
                step=2, repeats=True),
}  # fmt: skip

# "NAME[4711]: segfault at ... in PROGRAM[...]": both names are a user's, and may be anything.
_OF_A_PROGRAM: Final = re.compile(r"[^\n]{1,15}\[\d+\]: ")

_VALID, _UNCORRECTED = 1 << 63, 1 << 61  # IA32_MCi_STATUS: VAL and UC; AMD's MCA_STATUS has them in the same places

_SXID = re.compile(
    r"nvidia-nvswitch(?P<switch>\d+): SXid \(PCI:(?P<pci>[0-9a-fA-F:.]+)\): (?P<code>\d{1,6}), "
    r"(?P<severity>Fatal|Non-fatal)(?:, (?:.*?\b)?Link (?P<link>-?\d+))?"
)


@dataclass(frozen=True)
class Sxid:
    """An NVSwitch's error.

    ``nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up``; the lines with Severity and
    Data that follow repeat the number and are no events of their own.
    """

    switch: str
    pci_bus_id: str
    code: str
    fatal: bool
    link: str
    """Its number as NVLink's links have theirs, ``8``; empty where the error is of no link."""


class Event(NamedTuple):
    """A line of an event.

    Attributes:
        kind: of ``KINDS``.
        part: what the event is about, as far as its lines say: ``python[4711]``, ``nvme3``; empty if unknown.
        text: the line.
        is_new: False for a line that belongs to an event that an earlier line began.
        uncorrected: True for the first line of an event that says that it was not corrected.
    """

    kind: str
    part: str
    text: str
    is_new: bool = False
    uncorrected: bool = False


@dataclass
class _Open:
    """An event that may yet get another line."""

    part: str
    step: int
    at: float
    uncorrected: bool


@dataclass
class _Firmware:
    """Collect what the lines of one record of the firmware have said so far."""

    number: str = ""
    severity: str = ""
    unit: str = ""
    kinds: tuple[str, ...] = ()


class EventReader:
    """Turns records into events; remembers those that may get another line. Not thread-safe."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], _Open] = {}
        self._firmware = _Firmware()

    def feed(self, record: Record, *, live: bool = False) -> Event | None:
        """Return the event of the log's next record; None for records of none, and for Xids.

        ``live``: it was logged while somebody read, so that it is none of the boot's.
        """
        text = record.text
        known = _known(text)
        if known is None:
            if text[:1] == "{":
                return self._firmware_line(record)
            return None if record.level > CRITICAL_LEVEL else _unnamed(text)
        line, match = known
        if line.healthy_at_boot and not live and record.seconds < _BOOT_SECONDS:
            return None
        groups = match.groupdict()
        uncorrected = _is_uncorrected(line, groups)
        if uncorrected is None:
            return None
        number = groups.get("number")
        part = groups.get("part") or groups.get("name") or ""
        return self._event(record, line, f"{part}[{number}]" if number else part, uncorrected=uncorrected)

    def _event(self, record: Record, line: Line, part: str, *, uncorrected: bool) -> Event:
        kind = KINDS[line.kind]
        key = (kind.name, part if kind.by_part and not line.step else "")
        event = self._open.get(key)
        joins = (
            event is not None
            and record.seconds - event.at <= kind.seconds
            and (
                line.step > event.step
                or (not line.repeats and line.step == event.step and (not kind.by_part or part == event.part))
            )
        )
        if event is None or not joins:
            if len(self._open) >= MOST_OPEN:
                self._open.pop(next(iter(self._open)))
            self._open.pop(key, None)  # the eldest come first
            self._open[key] = _Open(part, line.step, record.seconds, uncorrected)
            return Event(kind.name, part, record.text, is_new=True, uncorrected=uncorrected)
        newly = uncorrected and not event.uncorrected
        event.part, event.step, event.at = part or event.part, line.step, record.seconds
        event.uncorrected |= uncorrected
        return Event(kind.name, event.part, record.text, uncorrected=newly)

    def _firmware_line(self, record: Record) -> Event | None:
        match = _APEI.match(record.text)
        if match is None:
            return None
        if match["record"] != self._firmware.number:
            self._firmware = _Firmware(match["record"])
        firmware = self._firmware
        severity = match["type"] or match["severity"]
        if severity:
            firmware.severity = severity.lower()
            return None
        firmware.unit = match["device"] or match["fru"] or firmware.unit
        if match["section"]:
            line = SECTIONS[match["section"].startswith("PCIe")]
            if firmware.severity in _NO_ERROR or line.kind in firmware.kinds:
                return None
            firmware.kinds += (line.kind,)
            return self._event(record, line, firmware.unit, uncorrected=firmware.severity in _NOT_CORRECTED)
        event = self._open.get((firmware.kinds[-1], "")) if match["device"] and firmware.kinds else None
        if event is None:
            return None
        event.part = firmware.unit
        return Event(firmware.kinds[-1], event.part, record.text)


def _unnamed(text: str) -> Event | None:
    """Return the event of a line of the levels critical and worse that no row knows."""
    no_error = text.startswith("NVRM:") or "[Hardware Error]" in text
    return None if no_error else Event("other", "", text, is_new=True)


def _known(text: str) -> tuple[Line, re.Match[str]] | None:
    """Return the line of the catalogue that a text matches, and the match."""
    for line, expression in _BY_START.get(text[:START], ()):
        match = expression.match(text)
        if match is not None and not _OF_A_PROGRAM.match(text):
            return line, match
    second = text.find(" ")
    # The domain of a PCI address has four to eight digits.
    has_address = ":" in text[second + 5 : second + 10]
    for needle, line, expression in _OF_ANY_NAME if has_address else _OF_PROGRAMS:
        if needle in text and (match := expression.match(text)) is not None:
            return line, match
    return None


def _is_uncorrected(line: Line, groups: dict[str, str | None]) -> bool | None:
    """Return whether the error was not corrected; None if the status word says that there is none."""
    status = groups.get("status")
    if status is not None:
        bits = int(status, 16)
        if not bits & _VALID and not groups.get("exception"):
            return None
        return bool(bits & _UNCORRECTED)
    return line.uncorrected or groups.get("ue") is not None


def sxid(text: str) -> Sxid | None:
    """Parse the NVSwitch error that a line begins; None for all other lines."""
    match = _SXID.match(text)
    if match is None:
        return None
    fatal = match["severity"] == "Fatal"
    return Sxid(match["switch"], match["pci"].lower(), match["code"], fatal, link_number(match["link"] or ""))


def link_number(text: str) -> str:
    """Return a link's number without the driver's leading zeros; empty if it is no number.

    >>> link_number("08"), link_number("0"), link_number("-1")
    ('8', '0', '')
    """
    return str(int(text)) if text.isdecimal() else ""
