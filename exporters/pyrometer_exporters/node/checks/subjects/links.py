"""Links for training and storage: HCAs, ports, rates, firmware, and the way from a GPU's memory to them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from pyrometer_exporters.node.checks.check import Check, Problem, Verdict, absent, judged, listed, unknown
from pyrometer_exporters.node.checks.config import CLASSES, COMPUTE
from pyrometer_exporters.node.checks.node import Node
from pyrometer_exporters.node.checks.parts import EARLIER, Part, described, lost, missing
from pyrometer_exporters.node.checks.rdma import (
    ETHERNET,
    Port,
    by_identity,
    described_by,
    devices_of,
    ports,
    stated_for,
)
from pyrometer_exporters.node.nic.expected_links import LEAST_PEERS, PEERS_UP
from pyrometer_exporters.node.nic.fabric_functions import INFINIBAND
from pyrometer_exporters.node.nic.pcie import functions

# Modules that let a NIC of this driver reach a GPU's memory, besides dma-buf: NVIDIA's for mlx5, Amazon's for EFA.
_PEER_MODULES: Mapping[str, Collection[str]] = {
    "mlx5_core": ("nvidia_peermem", "nv_peer_mem"),
    "efa": ("efa_nv_peermem", "nvidia_peermem"),
}
# So many ports for training are no workstation's or file server's.
_LEAST_RAILS: Final = 4


def _count(node: Node) -> Verdict:
    hca_ports = ports(node)
    present, learned = devices_of(hca_ports), node.expected.learned("hcas")
    wanted = node.expected.get("hcas")
    facts: dict[str, Any] = {"hcas": present, "hca_ports": _up(hca_ports)}
    if not node.sees_hardware:
        return unknown(f"{node.paths.sysfs} can't be seen")
    if not present and not wanted and not learned:
        return absent("no RDMA device on this node", **facts)
    gone = [(part, why) for part in lost(learned, present) if (why := _why_missing(node, part, hca_ports))]
    names = [f"{described(part, 'guid')} {why[0]} (there {EARLIER})" for part, why in gone]
    advice = " ".join(dict.fromkeys(why[1] for _, why in gone))
    if isinstance(wanted, list):
        have = {name for port in hca_ports for name in port.names}
        return judged([Problem(text, action=advice) for text in missing(wanted, have)], **facts)
    short = []
    for role, number in _stated_counts(wanted).items():
        devices = sorted({port.device for port in hca_ports if port.role == role})
        if len(devices) < number:
            those = names or [", ".join(devices) or "none"]
            short.append(f"{len(devices)} of {number}{_of(wanted, role)} HCAs (stated): {listed(those)}")
    if short:
        return judged([Problem(text, action=advice) for text in short], **facts)
    others = [
        Problem(name, action=why[1], learned=True)
        for name, (part, why) in zip(names, gone, strict=True)
        if part.get("role", COMPUTE) not in _stated_counts(wanted)  # what is stated goes before what was learned
    ]
    return judged(others, _unlike_other_rails(node, hca_ports) if wanted is None else [], **facts)


def _unlike_other_rails(node: Node, hca_ports: Sequence[Port]) -> list[str]:
    """Report root ports that have fewer RDMA devices, or fewer GPUs, below them than nearly all the others.

    A slot may have been left empty, so it is no certain loss; but nothing else finds a part that was missing from the
    first day on.
    """
    bus, rdma = f"{node.paths.sysfs}/bus/pci/devices", f"{node.paths.sysfs}/class/infiniband"
    gpus = {address: _root(node, f"{bus}/{address}") for address in node.gpus_on_bus or ()}
    devices = {port.device: _root(node, f"{rdma}/{port.device}/device") for port in hca_ports if port.by_gpu}
    rails = {
        root: (sum(other == root for other in gpus.values()), sum(other == root for other in devices.values()))
        for root in gpus.values()
    }
    (usual, times), *_ = Counter(rails.values()).most_common(1) or [((0, 0), 0)]
    words = []
    for root, (own_gpus, own_devices) in rails.items():
        if own_gpus == usual[0] and own_devices < usual[1]:
            beside = ", ".join(address for address, other in gpus.items() if other == root)
            words.append(f"{own_devices} of {usual[1]} RDMA devices are beside {beside}")
        elif own_devices == usual[1] and own_gpus < usual[0] and own_devices:
            beside = ", ".join(device for device, other in devices.items() if other == root)
            words.append(f"{own_gpus} of {usual[0]} GPUs are beside {beside}")
    if not words or times < max(LEAST_PEERS, PEERS_UP * len(words)):
        return []
    return [f"{listed(words)}, as the others have: state `hcas` and `gpus`"]


def _root(node: Node, link: str) -> str:
    chain = functions(node.real(link))
    return chain[-1] if chain else ""


def _stated_counts(wanted: Any) -> Mapping[str, int]:  # noqa: ANN401  the value of the setting
    """Return by role how many HCAs are stated; a plain number is of those for training."""
    return wanted if isinstance(wanted, dict) else {COMPUTE: wanted} if isinstance(wanted, int) else {}


def _of(wanted: Any, role: str) -> str:  # noqa: ANN401  the value of the setting
    return f" {role}" if isinstance(wanted, dict) else ""


def _why_missing(node: Node, part: Part, hca_ports: Sequence[Port]) -> tuple[str, str] | None:
    """Return in words why a device is missing, and what to do; None where somebody took it."""
    bus, address = node.paths.sysfs / "bus/pci/devices", part.get("address", "")
    vendor = part.get("vendor", "").removeprefix("0x")
    if not (bus / address).is_dir():
        look = f"lspci -d {vendor}:" if vendor else "lspci"
        return (
            "is missing: it is off the bus",
            f"Look for it on the bus (`{look}`); reseat it, then power-cycle the node.",
        )
    driver = node.driver(bus / address)
    if not driver:
        own = part.get("driver") or "its driver"
        return "is missing: it is on the bus and no driver has it", f"`dmesg | grep {address}`; load {own}."
    if driver != part.get("driver", driver):  # vfio-pci: a virtual machine has it
        return None
    if any(
        "bond" in port.device and port.address.rpartition(".")[0] == address.rpartition(".")[0] for port in hca_ports
    ):
        return None
    if node.text(node.paths.sysfs / "module/ib_core/parameters/netns_mode") == "N":
        return None  # RDMA devices belong to whoever took them
    return "is missing: its driver made no RDMA device", f"`dmesg | grep {address}`; is its RDMA module loaded?"


def _up(hca_ports: Sequence[Port]) -> dict[str, Part]:
    """Return the ports whose link is up, to be expected to stay so."""
    return {
        identity: described_by(port, of_device=False) for identity, port in by_identity(hca_ports).items() if port.up
    }


def _links(node: Node) -> Verdict:
    hca_ports = ports(node)
    facts: dict[str, Any] = {"hca_ports": _up(hca_ports)}
    if not hca_ports:
        return absent("no RDMA device on this node; hca_count checks whether there should be one")
    blind = [f"{port.name}: its state can't be read" for port in hca_ports if port.state is None]
    down = [port for port in hca_ports if not port.up and port.state is not None]
    wanted, learned = node.expected.get("hcas"), node.expected.learned("hca_ports")
    if isinstance(wanted, list):
        short = [port for port in down if set(port.names[:4]) & set(wanted)]
        return judged([_down(port, "stated") for port in short], blind, **facts)
    problems, once_up = [], _once_up(hca_ports, learned)
    for role, number in _stated_counts(wanted).items():
        up = [port for port in hca_ports if port.up and port.role == role]
        # A port that was up has lost its cable; another may never have had one.
        those = [port for port in down if port.role == role]
        those = [port for port in those if port.name in once_up] or those
        if len(up) < number and len({port.device for port in hca_ports if port.role == role}) > len(up) and not blind:
            named = listed([f"{port.name} {port.words}" for port in those])
            text = f"{len(up)} of {number}{_of(wanted, role)} links are up: {named}"
            problems.append(Problem(text + _waiting(those), action=_advice(those)))
        elif len(up) < number and not those and not blind:
            problems.append(
                Problem(f"{len(up)} of {number}{_of(wanted, role)} links are up: hca_count says what is missing")
            )
    others = [port for port in down if port.role not in _stated_counts(wanted)]
    problems += [_down(port, f"there {EARLIER}", learned=True) for port in others if port.name in once_up]
    if not problems and wanted is None:
        odd = [port for port in _unlike_peers(hca_ports) if not port.is_off]
        problems += [_down(port, "all like it are up") for port in odd]
    if problems or blind:
        return judged(problems, blind, **facts)
    if wanted is None and not learned and not any(port.up for port in hca_ports):
        waiting = [port for port in down if port.waits]
        if waiting:
            return unknown(
                f"no link is up{_waiting(waiting)}; nothing says whether one should be: state `hcas`", **facts
            )
        return absent("no link is up, and nothing says that one should be: state `hcas`", **facts)
    return judged([], **facts)


def _once_up(hca_ports: Sequence[Port], learned: Mapping[str, Part]) -> set[str]:
    """Return the ports that were up for a day, or in whose place another port was."""
    places = {part.get("address") for part in learned.values()}
    return {
        port.name
        for identity, port in by_identity(hca_ports).items()
        if identity in learned or f"{port.address}/{port.port}" in places
    }


def _down(port: Port, why: str, *, learned: bool = False) -> Problem:
    return Problem(f"{port.name} is {port.words} ({why}){_waiting([port])}", action=_advice([port]), learned=learned)


def _waiting(down: Sequence[Port]) -> str:
    return ": the cable is good, the subnet manager has not set it up" if down and all(p.waits for p in down) else ""


def _advice(down: Sequence[Port]) -> str:
    """Return what to do about these ports, each kind once."""
    steps: dict[str, None] = {}
    for port in down:
        if port.waits:
            steps["Look at the subnet manager (`sminfo`; opensm or UFM): the cable is good."] = None
        elif port.is_off and port.layer == INFINIBAND:
            steps["Disabled: enable the port (`ibportstate`)."] = None
        elif port.layer == ETHERNET:
            steps["`ip link` and `ethtool` of its interface; reseat cable and transceiver, both ends."] = None
        elif port.layer == INFINIBAND:
            steps["Reseat or replace cable and transceiver, both ends."] = None
        else:
            steps[f"`dmesg | grep {port.address}`: the driver reports this link."] = None
    return " ".join(steps)


def _unlike_peers(hca_ports: Sequence[Port]) -> list[Port]:
    """Return the ports that are down while nearly all like them are up; see ``nic/expected_links.py``."""
    groups: dict[tuple[object, ...], list[Port]] = defaultdict(list)
    for port in hca_ports:
        function = port.address.rpartition(".")[2]
        groups[port.model, port.layer, port.port, function, port.by_gpu].append(port)
    odd = []
    for group in groups.values():
        down = [port for port in group if not port.up]
        if len(group) - len(down) >= max(LEAST_PEERS, PEERS_UP * len(down)):
            odd += down
    return odd


def _rate(node: Node) -> Verdict:
    hca_ports = ports(node)
    up = {identity: port for identity, port in by_identity(hca_ports).items() if port.up and port.rate is not None}
    if not up:
        return absent("no link is up")
    stated, learned = node.expected.get("rate"), node.expected.learned("hca_rates")
    slow = _slower_than_peers(list(up.values()))
    problems = []
    for identity, port in up.items():
        now, wanted = port.rate or 0, stated_for(port, stated)
        for limit, why in (
            (wanted, "stated"),
            (learned.get(identity), EARLIER),
            (slow.get(port.name), "as its peers do"),
        ):
            if limit is not None:
                if now < limit:
                    text = f"{port.name} runs at {now / 1e9:g} of {limit / 1e9:g} Gb/s ({why})"
                    problems.append(Problem(text, learned=limit is not wanted and limit is learned.get(identity)))
                break
    return judged(problems, hca_rates={identity: port.rate or 0 for identity, port in up.items()})


def _slower_than_peers(up: Sequence[Port]) -> dict[str, int]:
    """Return the rate of nearly all their likes for those that are slower; only ports beside a GPU are surely alike."""
    groups: dict[tuple[str, str], list[Port]] = defaultdict(list)
    for port in up:
        if port.by_gpu:
            groups[port.model, port.layer].append(port)
    slow = {}
    for group in groups.values():
        most = max(port.rate or 0 for port in group)
        behind = [port for port in group if (port.rate or 0) < most]
        if len(group) - len(behind) >= max(LEAST_PEERS, PEERS_UP * len(behind)):
            slow.update({port.name: most for port in behind})
    return slow


def _firmware(node: Node) -> Verdict:
    devices = {port.device: port for port in ports(node) if port.firmware}
    if not devices:
        return absent("no RDMA device reports its firmware")
    stated = node.expected.get("firmware")
    boards: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)  # RoCE's are often updated apart
    for port in devices.values():
        boards[port.model, port.layer][port.firmware] += 1
    problems = []
    for name, port in devices.items():
        wanted = stated_for(port, stated)
        # The first number is the chip's family: another chip can't have the version that is stated for this one.
        if wanted is not None and not isinstance(stated, Mapping) and _family(wanted) != _family(port.firmware):
            wanted = None
        if wanted is None:
            usual, times = boards[port.model, port.layer].most_common(1)[0]
            wanted = usual if 2 * times > boards[port.model, port.layer].total() else port.firmware
        if port.firmware != wanted:
            problems.append(f"{name} has firmware {port.firmware}, not {wanted}")
    return judged(problems)


def _family(version: str) -> str:
    return version.partition(".")[0]


def _gpudirect(node: Node) -> Verdict:
    modules = node.paths.sysfs / "module"
    rails = [port for port in ports(node) if port.role == COMPUTE and port.driver in _PEER_MODULES]
    if not rails or not (modules / "nvidia").exists():
        return absent("no RDMA device that reaches GPUs, or the NVIDIA driver is not loaded")
    names = list(dict.fromkeys(name for port in rails for name in _PEER_MODULES[port.driver]))
    every = dict.fromkeys(name for modules_of in _PEER_MODULES.values() for name in modules_of)
    loaded = [name for name in every if (modules / name).exists()]
    facts: dict[str, Any] = {"peer_modules": dict.fromkeys(loaded, 1)}
    # dma-buf needs the open kernel module; it is a part of it, so there is no module of its own to look for.
    version = node.text(node.paths.procfs / "driver/nvidia/version")
    if loaded or "Open Kernel Module" in (version or ""):
        return judged([], **facts)
    if version is None:
        return unknown("whether the driver has dma-buf is not known: its version can't be read")
    before = [name for name in node.expected.learned("peer_modules") if name in names]
    text, action = f"{' or '.join(names[:1])} is not loaded, and the driver has no dma-buf", _peer_action(names)
    if before:
        text += f" ({before[0]} was loaded, {EARLIER})"
    if before or len(rails) >= _LEAST_RAILS or "gpudirect" in node.listed:
        return judged([Problem(text, action=action)], **facts)
    return absent("few links, and nothing says that GPUs use them: list `gpudirect` under `checks`")


def _peer_action(names: Sequence[str]) -> str:
    return f"Load it (`modprobe {names[0].replace('_', '-')}`), or install the open kernel module."


CHECKS = (
    Check(
        "hca_count",
        "all HCAs are present",
        "sysfs: class/infiniband, bus/pci/devices",
        "gcm check-hca, LBNL NHC, Imbue",
        "Look for it on the bus (`lspci`); reseat it, then power-cycle the node.",
        _count,
    ),
    Check(
        "hca_links",
        f"as many links are up as `hcas` states ({', '.join(CLASSES)}), and all that were up for a day",
        "sysfs: class/infiniband/DEVICE/ports/PORT/state, phys_state",
        "gcm check-ibstat, gpud infiniband, Imbue",
        "See hca_count: what is missing has no link.",
        _links,
    ),
    Check(
        "hca_rate",
        "links have the rate that is stated, that they had for a day, or that their peers beside the GPUs have",
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
        "sysfs: module/nvidia_peermem, efa_nv_peermem; /proc/driver/nvidia/version",
        "gpud peermem, Imbue",
        "Load the module, or install the open kernel module.",
        _gpudirect,
    ),
)
