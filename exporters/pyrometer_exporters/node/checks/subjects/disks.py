"""Disks: those of the machine, and the arrays that they make."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from pyrometer_exporters.node.checks.check import Check, Problem, Verdict, absent, judged, unknown
from pyrometer_exporters.node.checks.node import Node
from pyrometer_exporters.node.checks.parts import EARLIER, described, identities, lost, too_few

# As nvme list shows volumes that are attached and detached: EBS, GCP's disks, Azure's, Alibaba's, and simulated ones.
_VOLUME: Final = re.compile(r"Elastic Block Stor|nvme_card-pd|NVMe Accelerator|QEMU|VMware|[Vv]irtual")
# And a virtual machine's disks that are its own; the next instance has others at their addresses.
_OF_INSTANCE: Final = re.compile(
    r"Instance Storage|Direct Disk|^nvme_card\d*$|(?i:samsung|micron|intel|kioxia|solidigm|toshiba|wdc)"
)


def _nvme(node: Node) -> Verdict:
    folder = node.paths.sysfs / "class/nvme"
    if not node.sees_hardware:
        return unknown(f"{node.paths.sysfs} can't be seen")
    disks = {name: _disk(node, name) for name in node.names(folder)}
    states = {name: node.text(folder / name / "state") for name in disks}
    # Others are on their way: connecting, resetting, deleting (Linux: drivers/nvme/host/core.c).
    problems: list[str | Problem] = [
        f"{described(disks[name], 'serial')} is dead" for name in disks if states[name] == "dead"
    ]
    blind = [
        f"{name}: its state can't be read" for name in disks if states[name] is None and not (folder / name).is_dir()
    ]
    stays = {name: disk for name, disk in disks.items() if _stays(node, disk)}
    pairs = ((f"serial:{disk['serial']}" if disk["serial"] else "", disk) for disk in stays.values())
    facts = {"nvmes": identities(pairs)}
    wanted, learned = node.expected.get("nvmes"), node.expected.learned("nvmes")
    gone = [f"{described(disk, 'serial')} is missing (there {EARLIER})" for disk in lost(learned, facts["nvmes"])]
    if isinstance(wanted, list):
        names = {value for disk in disks.values() for value in disk.values()}
        problems += [f"{name} is missing (stated)" for name in wanted if name not in names]
    elif isinstance(wanted, dict):
        problems += too_few(wanted, (disk["model"] for disk in disks.values()))
    elif wanted is not None:
        more = f": {'; '.join(gone)}" if gone else ""
        problems += [f"{len(disks)} of {wanted} NVMe disks (stated){more}"] if len(disks) < wanted else []
    else:
        problems += [Problem(text, learned=True) for text in gone]
    if not disks and not problems:
        return absent("no NVMe disk", **facts)
    return judged(problems, blind, **facts)


def _disk(node: Node, name: str) -> dict[str, str]:
    folder = node.paths.sysfs / "class/nvme" / name
    texts = {key: node.text(folder / key) or "" for key in ("address", "model", "serial", "transport")}
    return {"name": name, **texts}


def _stays(node: Node, disk: Mapping[str, str]) -> bool:
    """Return whether a disk is a part of the machine: not one over a fabric, nor a volume of a cloud."""
    if disk["transport"] not in ("", "pcie") or _VOLUME.search(disk["model"]):
        return False
    return not node.is_virtual or _OF_INSTANCE.search(disk["model"]) is not None


def _raid(node: Node) -> Verdict:
    text = node.text(node.paths.procfs / "mdstat") or ""
    # md0 : active raid1 nvme1n1[1](F) nvme0n1[0] / 937560960 blocks super 1.2 [2/1] [U_]
    arrays = re.findall(r"^(md\S+) : .*\n\s+\d+ blocks.*\[(\d+)/(\d+)\]", text, re.MULTILINE)
    if not arrays:
        return absent("no software RAID with redundancy")
    return judged([f"{name} has {have} of {disks} disks" for name, disks, have in arrays if int(have) < int(disks)])


CHECKS = (
    Check(
        "nvme",
        "all NVMe disks that are the machine's own are present, and none is dead",
        "sysfs: class/nvme/nvme*/state, model, serial, address, transport",
        "gcm check-blockdev",
        "`nvme list`, `nvme smart-log`; exchange the disk.",
        _nvme,
    ),
    Check(
        "raid",
        "no software RAID is missing a disk",
        "/proc/mdstat",
        "gpud disk, Imbue (zpool)",
        "Replace the disk and add it again (`mdadm --detail`, `mdadm --add`).",
        _raid,
        severity="warning",
    ),
)
