"""The meaning of each Xid for those who are on call.

Classes: ``app``: the program's own fault; ``info``: for the record; ``warning``: look at it today, the GPU is usable;
``critical``: the GPU or its link is out of service until it is reset, rebooted or replaced. They follow NVIDIA's Xid
catalogue (https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, Ampere and newer): what it resets or
restarts the machine for is critical. Where others differ (63 and 94 as fatal, 109 as a warning) we follow NVIDIA.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple, cast, get_args

from pyrometer_kit.errors import UsageError

XidClass = Literal["app", "info", "warning", "critical"]
CLASSES: tuple[str, ...] = get_args(XidClass)
# A number that no list has: kept and counted, and worth a look.
UNKNOWN_CLASS: XidClass = "warning"


class Xid(NamedTuple):
    """One entry; ``by_text`` where the number alone says nothing, and the message decides."""

    code: int
    xid_class: XidClass
    meaning: str
    by_text: bool = False


TABLE = (
    Xid(8, "warning", "GPU stopped working on a task in time"),
    Xid(13, "app", "Graphics engine exception, mostly an access out of bounds"),
    Xid(31, "app", "Access to an address that is not mapped"),
    Xid(32, "warning", "Invalid or damaged command stream"),
    Xid(38, "warning", "Driver firmware error"),
    Xid(43, "app", "GPU stopped a program after its error"),
    Xid(44, "warning", "Fault while switching between programs"),
    Xid(45, "info", "Program cleaned up after an earlier error or its end"),
    Xid(46, "critical", "GPU stopped processing"),
    Xid(48, "critical", "Memory error that ECC could not correct"),
    Xid(61, "critical", "Power management unit halted at a breakpoint"),
    Xid(62, "critical", "Power management unit halted"),
    Xid(63, "info", "Memory row or page noted for replacement"),
    Xid(64, "critical", "Memory row or page could not be noted for replacement"),
    Xid(68, "warning", "Video decoder exception"),
    Xid(69, "app", "Graphics engine class error"),
    Xid(74, "critical", "NVLink error"),
    Xid(79, "critical", "GPU has fallen off the bus"),
    Xid(92, "info", "High rate of corrected memory errors"),
    Xid(94, "warning", "Memory error contained to one program"),
    Xid(95, "critical", "Memory error that could not be contained"),
    Xid(109, "critical", "Switch between programs timed out"),
    Xid(110, "critical", "Security fault"),
    Xid(119, "critical", "GPU system processor did not answer in time"),
    Xid(120, "critical", "GPU system processor error"),
    Xid(121, "info", "Corrected error on the link to the CPU"),
    Xid(122, "warning", "Configuration memory could not be read"),
    Xid(123, "warning", "Configuration memory could not be written"),
    Xid(136, "critical", "NVLink training failed"),
    Xid(137, "app", "Access over NVLink to an address that is not mapped"),
    Xid(140, "critical", "Memory error that was not recovered from"),
    Xid(143, "critical", "GPU could not be initialised"),
    # NVLink 5: whether the link is lost is in the message, Fatal or Nonfatal.
    Xid(144, "warning", "NVLink error, SAW", by_text=True),
    Xid(145, "warning", "NVLink error, RLW", by_text=True),
    Xid(146, "warning", "NVLink error, TLW", by_text=True),
    Xid(147, "warning", "NVLink error, TREX", by_text=True),
    Xid(148, "warning", "NVLink error, NVLPW_CTRL", by_text=True),
    Xid(149, "warning", "NVLink error, NETIR", by_text=True),
    Xid(150, "warning", "NVLink error, MSE", by_text=True),
    Xid(151, "warning", "Key rotation error"),
    # The message names the action; also sent when none is needed any more.
    Xid(154, "warning", "Required recovery action changed", by_text=True),
    Xid(155, "critical", "NVLink error found by software"),
    Xid(156, "warning", "Resource retired"),
    Xid(157, "critical", "Resource could not be retired"),
    Xid(158, "critical", "GPU timed out fatally"),
    Xid(159, "warning", "Coherent interface error"),
    Xid(160, "warning", "Channel retired"),
    Xid(161, "warning", "Channel could not be retired"),
    Xid(162, "warning", "Power smoothing engaged again"),
    Xid(163, "warning", "Power smoothing disengaged"),
    Xid(164, "warning", "Power smoothing circuit near the end of its life"),
    Xid(165, "warning", "Power smoothing circuit at the end of its life"),
    Xid(167, "critical", "PCIe timed out fatally"),
    Xid(168, "warning", "GPU runs with less memory"),
    Xid(169, "critical", "Security processor halted"),
    Xid(171, "critical", "Details of 48: in the DRAM"),
    Xid(172, "critical", "Details of 48: in the SRAM"),
    Xid(173, "critical", "Link to the CPU failed"),
)
_BY_CODE = {xid.code: xid for xid in TABLE}
_ACTION = re.compile(
    r"recovery action changed from 0x[0-9a-f]+ \([^)]*\) to 0x[0-9a-f]+ \((?P<new>[^)]*)\)", re.IGNORECASE
)
_FATAL = re.compile(r"\b(?P<non>non-?)?fatal\b", re.IGNORECASE)
_OVERRIDE = re.compile(r"\s*(?P<code>\d{1,5})\s*:\s*(?P<class>[a-z]+)\s*(?:#.*)?")


class Classes:
    """The class of each Xid: the catalogue's, unless the site has its own."""

    def __init__(self, overrides: Mapping[int, XidClass] | None = None) -> None:
        self._overrides: dict[int, XidClass] = dict(overrides or {})

    def critical_codes(self) -> list[int]:
        """Return the codes that can be critical: their counters exist, at 0, before the first event."""
        codes = {xid.code for xid in TABLE if xid.xid_class == "critical" or xid.by_text}
        codes |= self._overrides.keys()
        return sorted(code for code in codes if self._overrides.get(code, "critical") == "critical")

    def of(self, code: int, message: str = "") -> XidClass:
        """Return the class of an event; ``message`` is the rest of the kernel's line after number and process."""
        if code in self._overrides:
            return self._overrides[code]
        entry = _BY_CODE.get(code)
        if entry is None:
            return UNKNOWN_CLASS
        return _class_by_text(entry, message) if entry.by_text else entry.xid_class

    def needs_text(self, code: int) -> bool:
        """Return whether the class depends on the message, not the number alone."""
        return code not in self._overrides and code in _BY_CODE and _BY_CODE[code].by_text


def meaning(code: int) -> str:
    """Return a few words; ``Unknown Error`` for a number that the catalogue lacks, as in dcgm-exporter.

    >>> meaning(79)
    'GPU has fallen off the bus'
    """
    entry = _BY_CODE.get(code)
    return entry.meaning if entry else "Unknown Error"


def _class_by_text(xid: Xid, message: str) -> XidClass:
    if action := _ACTION.search(message):
        return "info" if action["new"].strip().lower() == "none" else "critical"
    if fatal := _FATAL.search(message):
        return "warning" if fatal["non"] else "critical"
    return xid.xid_class


def load_overrides(path: Path) -> dict[int, XidClass]:
    """Read the classes of a YAML file with ``79: critical`` on each line.

    Raises:
        UsageError: the file can't be read or used; names file and line.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: can't be read: {getattr(error, 'strerror', None) or error}") from None
    classes: dict[int, XidClass] = {}
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.lstrip().startswith(("#", "---")):
            code, xid_class = _override(line, f"{path}:{number}")
            if code in classes:
                raise UsageError(f"{path}:{number}: {code} was given before")
            classes[code] = xid_class
    return classes


def _override(line: str, where: str) -> tuple[int, XidClass]:
    match = _OVERRIDE.fullmatch(line)
    if match is None:
        raise UsageError(f"{where}: {line.strip()!r} is not a number and a class, such as 79: critical")
    if match["class"] not in CLASSES:
        raise UsageError(f"{where}: {match['class']} is not a class; known are {', '.join(CLASSES)}")
    return int(match["code"]), cast(XidClass, match["class"])
