"""Links for training: ports, rates, firmware, and the way from a GPU's memory to them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyrometer_exporters.node.checks.check import Check, Verdict, absent, judged, unknown
from pyrometer_exporters.node.checks.node import Node
from pyrometer_exporters.node.nic.parse import STATE_ACTIVE, STATE_ACTIVE_DEFER, code, rate


@dataclass(frozen=True)
class Port:
    """A port of an RDMA device; rate in bits per second, None where the driver doesn't report it."""

    device: str
    port: str
    layer: str
    up: bool
    words: str
    rate: int | None

    @property
    def name(self) -> str:
        """Return ``mlx5_0/1``."""
        return f"{self.device}/{self.port}"


def ports(node: Node) -> list[Port]:
    """Return the ports for training: those of InfiniBand, or all of RDMA where there is no InfiniBand."""
    hca_ports = list(_ports(node))
    return [port for port in hca_ports if port.layer == "InfiniBand"] or hca_ports


def _ports(node: Node) -> Iterator[Port]:
    devices = node.paths.sysfs / "class/infiniband"
    for device in node.names(devices):
        if (devices / device / "device/physfn").exists():  # a virtual function belongs to a pod or a virtual machine
            continue
        for port in node.names(devices / device / "ports"):
            folder = devices / device / "ports" / port
            state, physical = (node.text(folder / name) or "" for name in ("state", "phys_state"))
            up = code(state) in (STATE_ACTIVE, STATE_ACTIVE_DEFER)
            words = ", ".join(text.partition(":")[2].strip() for text in (state, physical) if text)
            layer = node.text(folder / "link_layer") or ""
            yield Port(device, port, layer, up, words, rate(node.text(folder / "rate") or ""))


def _count(node: Node) -> Verdict:
    devices = {port.device for port in ports(node)}
    before = node.expected.learned.get("hca_ports")
    wanted = node.expected.stated.get("hcas")
    if not devices and not wanted and not before:
        return absent("no RDMA device on this node")
    if wanted is not None:
        missing = [f"{len(devices)} of {wanted} HCAs: {', '.join(sorted(devices)) or 'none'}"]
        return judged(missing if len(devices) < wanted else [])
    gone = sorted({name.partition("/")[0] for name in before or ()} - devices)
    return judged([f"{name} is missing (present on the last healthy day)" for name in gone])


def _links(node: Node) -> Verdict:
    hca_ports = ports(node)
    if not hca_ports:
        return absent("no RDMA device on this node; hca_count checks whether there should be one")
    wanted, before = node.expected.stated.get("hcas"), node.expected.learned.get("hca_ports")
    up, down = [port for port in hca_ports if port.up], [port for port in hca_ports if not port.up]
    facts: dict[str, Any] = {"hca_ports": {port.name: port.rate for port in up}}
    if wanted is not None:
        named = "; ".join(f"{port.name} {port.words}" for port in down)
        return judged([f"{len(up)} of {wanted} links are up: {named}"] if len(up) < wanted else [], **facts)
    if before is None:
        reason = "`hcas` is not configured, and there was no healthy day yet: which ports have cables is not known"
        return unknown(reason, **facts)
    return judged([f"{port.name} is {port.words}" for port in down if port.name in before], **facts)


def _rate(node: Node) -> Verdict:
    up = [port for port in ports(node) if port.up and port.rate is not None]
    if not up:
        return absent("no link is up")
    stated, before = node.expected.stated.get("rate"), node.expected.learned.get("hca_ports") or {}
    most = max(port.rate or 0 for port in up)
    problems = []
    for port in up:
        # Without a word about it, a link should be as fast as it was, or as its fastest peer.
        wanted = stated or before.get(port.name) or most
        if (port.rate or 0) < wanted:
            problems.append(f"{port.name} runs at {(port.rate or 0) / 1e9:g} of {wanted / 1e9:g} Gb/s")
    return judged(problems)


def _firmware(node: Node) -> Verdict:
    devices = node.paths.sysfs / "class/infiniband"
    boards: dict[str, dict[str, str]] = {}
    for device in sorted({port.device for port in ports(node)}):
        version = node.text(devices / device / "fw_ver")
        if version:
            boards.setdefault(node.text(devices / device / "board_id") or "", {})[device] = version
    if not boards:
        return absent("no RDMA device reports its firmware")
    problems = []
    for versions in boards.values():
        values = list(versions.values())
        wanted = node.expected.get("firmware") or max(set(values), key=lambda value: (values.count(value), value))
        problems += [
            f"{name} has firmware {version}, not {wanted}" for name, version in versions.items() if version != wanted
        ]
    return judged(problems)


def _gpudirect(node: Node) -> Verdict:
    modules = node.paths.sysfs / "module"
    if not ports(node) or not (modules / "nvidia").exists():
        return absent("no RDMA device, or the NVIDIA driver is not loaded")
    peermem = (modules / "nvidia_peermem").exists()
    # dma-buf needs the open kernel module; it is a part of it, so there is no module of its own to look for.
    is_open = "Open Kernel Module" in (node.text(node.paths.procfs / "driver/nvidia/version") or "")
    return judged([] if peermem or is_open else ["nvidia_peermem is not loaded, and the driver has no dma-buf"])


CHECKS = (
    Check(
        "hca_count",
        "all HCAs are present",
        "sysfs: class/infiniband",
        "gcm check-hca, LBNL NHC, Imbue",
        "Look for it on the bus (`lspci -d 15b3:`); reseat it, then power-cycle the node.",
        _count,
    ),
    Check(
        "hca_links",
        "all links for training are up, from the first day on where `hcas` is configured",
        "sysfs: class/infiniband/DEVICE/ports/PORT/state, phys_state",
        "gcm check-ibstat, gpud infiniband, Imbue",
        "Down and Polling: reseat or replace cable and transceiver, both ends. Disabled: enable the port.",
        _links,
    ),
    Check(
        "hca_rate",
        "all links have their full rate",
        "sysfs: class/infiniband/DEVICE/ports/PORT/rate",
        "gcm check-ibstat (manifest), gpud infiniband (400 Gb/s for H100)",
        "Reseat or replace the cable; look at the switch port's speed.",
        _rate,
    ),
    Check(
        "hca_firmware",
        "HCAs of the same board have the same firmware",
        "sysfs: class/infiniband/DEVICE/fw_ver, board_id",
        "Imbue (flint)",
        "Update the odd one (`mstflint`, `mlxfwmanager`) and reset it.",
        _firmware,
        severity="warning",
    ),
    Check(
        "gpudirect",
        "an HCA can reach a GPU's memory",
        "sysfs: module/nvidia_peermem; /proc/driver/nvidia/version",
        "gpud peermem, Imbue",
        "Load it (`modprobe nvidia-peermem`), or install the open kernel module.",
        _gpudirect,
    ),
)
