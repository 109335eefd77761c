"""Classify lines of the kernel's log: the kind of hardware event that a line reports, if any.

One line for each event: where the kernel prints several, the one that it prints exactly once. Sample lines are beside
the patterns, which are anchored so that a program's own message that quotes one doesn't count.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pyrometer_exporters.node.kernel.kmsg import Record

KINDS = ("oom_kill", "machine_check", "pcie_aer", "sxid", "nvme", "link", "soft_lockup", "other")
CRITICAL_LEVEL = 2

_DEVICE = r"\S+ [0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
_PATTERNS = {
    # Memory cgroup out of memory: Killed process 4711 (python) total-vm:...; Kill, before Linux 5.0
    "oom_kill": r"(?:Memory cgroup )?[Oo]ut of memory(?: \([^)]*\))?: Kill(?:ed)? process \d",
    # mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 7: ...; EDAC MC0: 1 CE memory read error on ...;
    # {1}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 4
    "machine_check": (
        r"mce: \[Hardware Error\]: (?:CPU \d+: Machine Check|Machine check events logged)"
        r"|EDAC \S+: \d+ [CU]E |\{\d+\}\[Hardware Error\]: Hardware error from APEI"
    ),
    # pcieport 0000:3a:00.0: AER: Multiple Corrected error received: 0000:3b:00.0; newer: Correctable error message;
    # pcieport 0000:3a:00.0: DPC: containment event, status:0x1f01 source:0x0000
    "pcie_aer": rf"{_DEVICE}: (?:AER: (?:Multiple )?(?:Unc|C)orrect[^:]* error (?:message )?received|DPC: containment)",
    # nvme nvme0: I/O 22 QID 3 timeout, aborting; I/O error, dev nvme0n1, sector 2048 op 0x0:(READ) ...
    "nvme": (
        r"nvme nvme\d+: .*(?:timeout|controller is down|Removing after probe failure|Device not ready)"
        r"|(?:blk_update_request: )?(?:I/O|critical \w+) error, dev nvme"
    ),
    # mlx5_core 0000:18:00.0 ens1f0np0: Link down; bnxt_en 0000:af:00.0 eth0: NIC Link is Down;
    # mlx5_core 0000:18:00.0: Port module event[error]: module 0, Cable error, High Temperature
    "link": rf"(?:{_DEVICE}(?: \S+)?|[\w.-]+): (?:(?:NIC )?[Ll]ink (?:is )?[Dd]own|Port module event\[error\])",
    # watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python:4711]; INFO: task python:4711 blocked for more than ...;
    # rcu: INFO: rcu_sched self-detected stall on CPU; NMI watchdog: Watchdog detected hard LOCKUP on cpu 3
    "soft_lockup": (
        r"(?:(?:NMI )?watchdog: )?(?:BUG: soft lockup|Watchdog detected hard LOCKUP)"
        r"|INFO: task \S+ blocked for more than|(?:rcu: )?INFO: rcu_\w+ (?:self-)?detected"
    ),
    # BUG: unable to handle page fault for address: ...; Kernel panic - not syncing: ...
    "other": r"BUG: |kernel BUG at |Kernel panic |Oops: |general protection fault|Unable to handle kernel ",
}
_KIND = re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in _PATTERNS.items()))

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


# The subject of an event, by kind, for people: a process, a CPU, a memory controller, a device on the bus, a disk.
_PARTS = {
    "oom_kill": r"Kill(?:ed)? process (?P<number>\d+) \((?P<name>[^)]*)\)",
    "machine_check": r"(?P<name>CPU \d+|EDAC \S+?(?=:))",
    "pcie_aer": r"(?:.*received(?: from)?:? |\S+ )(?P<name>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])",
    "nvme": r"(?:^nvme |dev )(?P<name>nvme\d+)",
}
_PART = {kind: re.compile(pattern) for kind, pattern in _PARTS.items()}
_UNCORRECTED = {
    "machine_check": re.compile(r"EDAC \S+: \d+ UE "),
    "pcie_aer": re.compile(r"\S+ \S+: (?:AER: (?:Multiple )?Unc|DPC: containment)"),
}
UNCORRECTED_KINDS = tuple(_UNCORRECTED)


def part_of(kind: str, text: str) -> str:
    """Return what an event of this kind is about; empty where the line doesn't say it.

    >>> part_of("oom_kill", "Out of memory: Killed process 4711 (python) total-vm:1kB")
    'python[4711]'
    """
    match = _PART[kind].search(text) if kind in _PART else None
    if match is None:
        return ""
    number = match.groupdict().get("number")
    return f"{match['name']}[{number}]" if number else match["name"]


def is_uncorrected(kind: str, text: str) -> bool:
    """Return whether the line says that the hardware could not correct this error."""
    return kind in _UNCORRECTED and _UNCORRECTED[kind].match(text) is not None


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


def kind_of(record: Record) -> str | None:
    """Return the kind of event of a record that is no SXid, one of KINDS; None if it is no event.

    A record that matches no pattern is ``other`` if its level is critical or worse. The NVIDIA driver's Xids are no
    kernel events: the GPU collector counts them.
    """
    match = _KIND.match(record.text)
    if match is not None:
        return match.lastgroup
    return "other" if record.level <= CRITICAL_LEVEL and not record.text.startswith("NVRM:") else None
