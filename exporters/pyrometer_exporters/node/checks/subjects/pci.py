"""The PCI bus between GPUs and HCAs: links of the HCAs, and what would send peer-to-peer traffic the long way."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import Final

from pyrometer_exporters.node.checks.check import Check, Verdict, absent, judged, unknown
from pyrometer_exporters.node.checks.node import Node
from pyrometer_exporters.node.nic.pcie import functions

# Extended capabilities begin at 0x100; the id of ACS is 0x000D, and its control register is 6 bytes into it (PCIe 4.0,
# 7.7.8). Redirection of requests, of completions, and forwarding upstream send peer-to-peer traffic to the root port.
EXTENDED: Final = 0x100
ACS_ID, ACS_CONTROL, ACS_REDIRECTS = 0x000D, 6, 0x04 | 0x08 | 0x10
MOST_CAPABILITIES: Final = 64
_UNITS: Final = {"width": "lanes", "speed": "GT/s"}
# Both ways are right somewhere: virtual machines and Grace need translation, and firmware is delivered with either.
_A_CHOICE: Final = "a choice of the site: to have it judged, list {} under `checks`"


def _hca_pcie(node: Node) -> Verdict:
    devices = f"{node.paths.sysfs}/class/infiniband"
    links: dict[tuple[str, str], tuple[float, float, str]] = {}  # by address and what: now, most, model
    names = {}
    for name in node.names(devices):
        path = node.real(f"{devices}/{name}/device")
        chain = functions(path)
        if not chain or os.path.lexists(f"{path}/physfn"):
            continue
        above = chain[1] if len(chain) > 1 else chain[0]
        address = path.rpartition("/")[2]
        names[address] = name
        model = node.text(f"{devices}/{name}/board_id") or node.text(f"{path}/device") or ""
        for what in _UNITS:
            now = _first_number(node, f"{path}/current_link_{what}")
            most = [_first_number(node, f"{end}/max_link_{what}") for end in (path, above)]
            # The weaker of both ends: a slot with 8 lanes is no fault of the card.
            limits = [limit for limit in most if limit]
            if now and limits:
                links[address, what] = now, min(limits), model
    learned, problems = node.expected.learned("hca_lanes"), []
    for (address, what), (lanes, able, model) in links.items():
        key = f"{address} {what}"
        likes = [link[0] for (_, other), link in links.items() if other == what and link[2] == model]
        # Some firmware says more of a slot than is wired: evidence is what it had, or what a card like it has.
        seen = max([*likes, learned.get(key, 0)])
        wanted = min(able, seen) if len(likes) > 1 or node.is_virtual or key in learned else able
        if lanes < wanted:
            problems.append(f"{names[address]} has {lanes:g} of {wanted:g} PCIe {_UNITS[what]}")
    facts = {f"{address} {what}": now for (address, what), (now, _, _) in links.items()}
    return judged(problems, hca_lanes=facts) if links else absent("no RDMA device with a PCIe link")


def _first_number(node: Node, path: str) -> float | None:
    """Read ``16`` or ``32.0 GT/s PCIe``; None for ``Unknown``, 0 and 255, which mean that it isn't known."""
    text = (node.text(path) or "").split(" ")[0]
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value < 255 else None


def _bridges(node: Node) -> set[str]:
    """Return the folders of the ports above GPUs."""
    paths = [node.real(f"{node.paths.sysfs}/bus/pci/devices/{gpu}") for gpu in node.gpus_on_bus or []]
    return {folder for path in paths for folder in functions(path)[1:]}


def _acs(node: Node) -> Verdict:
    if "acs" not in node.listed:
        return absent(_A_CHOICE.format("acs"))
    bridges = _bridges(node)
    if not bridges:
        return absent("no GPU below a PCIe port")
    problems, readable = [], 0
    for folder in sorted(bridges):
        control = _acs_control(folder)
        if control is None:
            continue
        readable += 1
        if control & ACS_REDIRECTS:
            problems.append(f"{folder.rpartition('/')[2]} redirects (ACS control {control:#06x})")
    if not readable:
        return unknown("the ports' configuration beyond 256 bytes can only be read by root")
    return judged(problems)


def _acs_control(folder: str) -> int | None:
    """Return a port's ACS control register; 0 for a port without ACS, None where it can't be read."""
    try:
        with open(f"{folder}/config", "rb") as file:
            config = file.read(4096)
    except OSError:
        return None
    if len(config) <= EXTENDED:
        return None
    return next((control for name, control in _capabilities(config) if name == ACS_ID), 0)


def _capabilities(config: bytes) -> Iterator[tuple[int, int]]:
    at = EXTENDED
    for _ in range(MOST_CAPABILITIES):
        if not EXTENDED <= at <= len(config) - 8:
            return
        (header,) = struct.unpack_from("<I", config, at)
        yield header & 0xFFFF, struct.unpack_from("<H", config, at + ACS_CONTROL)[0]
        at = header >> 20


def _iommu(node: Node) -> Verdict:
    if "iommu" not in node.listed:
        return absent(_A_CHOICE.format("iommu"))
    gpus = node.gpus_on_bus or []
    if not gpus:
        return absent("no GPU")
    problems = []
    for gpu in gpus:
        kind = node.text(node.paths.sysfs / "bus/pci/devices" / gpu / "iommu_group/type")
        if kind is not None and kind != "identity":
            problems.append(f"{gpu} is translated ({kind})")
    return judged(problems)


CHECKS = (
    Check(
        "hca_pcie",
        "HCAs have the PCIe lanes and generation that they had, and that others of their board have",
        "sysfs: current_link_width, current_link_speed, and max_ of both ends",
        "gcm check-pci (manifest), Imbue",
        "Reseat the HCA or its riser; look at the slot's setting in the BIOS.",
        _hca_pcie,
    ),
    Check(
        "acs",
        "where listed: no port above a GPU redirects peer-to-peer traffic (ACS)",
        "sysfs: bus/pci/devices/PORT/config (root)",
        "NCCL's troubleshooting guide, Imbue",
        "Turn ACS off in the BIOS or at boot (`setpci -s PORT ECAP_ACS+6.w=0`).",
        _acs,
        severity="warning",
    ),
    Check(
        "iommu",
        "where listed: GPUs are not translated by the IOMMU",
        "sysfs: bus/pci/devices/GPU/iommu_group/type",
        "NCCL's troubleshooting guide",
        "Boot with iommu=pt, or turn VT-d / AMD-Vi off in the BIOS.",
        _iommu,
        severity="warning",
    ),
)
