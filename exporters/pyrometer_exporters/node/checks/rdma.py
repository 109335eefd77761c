"""The RDMA ports of a node, and what each is for: read from the machine, not from a list of models.

``compute`` carries training; ``storage`` and ``management`` are the others. A port beside a GPU is for training, and
where no port is beside one (clouds flatten the bus), the fastest are. InfiniBand goes before RoCE.

These are no HCAs: a virtual function, which a pod or a virtual machine has; the function with which a cloud's host
speeds up a machine's Ethernet, and which it takes away at will; a device without hardware (soft-RoCE, siw);
and the limited functions with which the fabric manager reaches the NVSwitches (``nic/fabric_functions.py``).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pyrometer_exporters.node.checks.config import COMPUTE, MANAGEMENT, STORAGE
from pyrometer_exporters.node.checks.node import Node
from pyrometer_exporters.node.checks.parts import Part, identities
from pyrometer_exporters.node.nic.fabric_functions import INFINIBAND, RdmaFunction, fabric_functions
from pyrometer_exporters.node.nic.parse import (
    PHYS_DISABLED,
    STATE_ACTIVE,
    STATE_ACTIVE_DEFER,
    code,
    gid_guid,
    guid,
    pci_address,
    rate,
)
from pyrometer_exporters.node.nic.pci_function import is_lent
from pyrometer_exporters.node.nic.pcie import nearest

ETHERNET = "Ethernet"
STATE_INIT, PHYS_LINK_UP = 2, 5  # include/rdma/ib_verbs.h: IB_PORT_INIT, IB_PORT_PHYS_STATE_LINK_UP
_VPD_BYTES: Final = 1024


@dataclass(frozen=True)
class Port:
    """A port of an RDMA device.

    Attributes:
        device, port: as in sysfs, ``mlx5_0`` and ``1``.
        layer: ``InfiniBand``, ``Ethernet``, or what the driver says (EFA: ``Unknown``).
        state, physical: the kernel's numbers; None where they can't be read.
        words: both as sysfs spells them.
        rate: bits per second; None where the driver doesn't report it.
        guid: of the port, else of its device; may be empty.
        address: of its PCI function; empty for a device without hardware.
        model: what its likes have too: the board's id, else the PCI device's.
        firmware, driver, vendor: may be empty.
        by_gpu: whether a GPU is below the same root port.
        role: ``compute``, ``storage``, ``management``.
    """

    device: str
    port: str
    layer: str = ""
    state: int | None = None
    physical: int | None = None
    words: str = ""
    rate: int | None = None
    guid: str = ""
    address: str = ""
    model: str = ""
    firmware: str = ""
    driver: str = ""
    vendor: str = ""
    by_gpu: bool = False
    role: str = COMPUTE

    @property
    def name(self) -> str:
        """Return ``mlx5_0/1``."""
        return f"{self.device}/{self.port}"

    @property
    def up(self) -> bool:
        """True if its link is up."""
        return self.state in (STATE_ACTIVE, STATE_ACTIVE_DEFER)

    @property
    def waits(self) -> bool:
        """True if its cable is good and the subnet manager has not set it up."""
        return self.state == STATE_INIT and self.physical == PHYS_LINK_UP

    @property
    def is_off(self) -> bool:
        """True if somebody has disabled it."""
        return self.physical == PHYS_DISABLED

    @property
    def names(self) -> tuple[str, ...]:
        """Its names in the configuration, the most special one first."""
        return (self.name, self.device, self.address, self.guid, self.model, self.role)


def ports(node: Node) -> list[Port]:
    """Return the ports of all HCAs, each with its role."""
    return node.once("rdma", lambda: _look(node))[0]


def limited_functions(node: Node) -> set[str]:
    """Return the devices through which a fabric manager on this node reaches its NVSwitches."""
    return node.once("rdma", lambda: _look(node))[1]


def _look(node: Node) -> tuple[list[Port], set[str]]:
    """Return the ports of HCAs, and the devices that are the fabric manager's."""
    hca_ports = list(_read(node))
    gpus = [node.real(f"{node.paths.sysfs}/bus/pci/devices/{gpu}") for gpu in node.gpus_on_bus or []]
    folder = f"{node.paths.sysfs}/class/infiniband"
    near = {device: bool(nearest(node.real(f"{folder}/{device}/device"), gpus)) for device in _devices(hca_ports)}
    hca_ports = [replace(port, by_gpu=near[port.device]) for port in hca_ports]
    limited = _limited(node, hca_ports)
    rates = node.expected.learned("hca_rates")
    hcas = [port for port in hca_ports if port.device not in limited]
    wanted = node.expected.get("hcas")
    with_roles = _with_roles(
        hcas, {name: int(value) for name, value in rates.items()}, wanted if isinstance(wanted, int) else 0
    )
    return with_roles, limited


def by_identity(hca_ports: Sequence[Port]) -> dict[str, Port]:
    """Return ports by what outlives their name: the GUID, else the PCI address, and the port's number."""
    devices = {port.device: port for port in hca_ports}
    pairs = [(f"guid:{port.guid}" if port.guid else "", described_by(port)) for port in devices.values()]
    # A device with two ports has a GUID for each.
    names = {part["name"]: identity for identity, part in identities(pairs).items()}
    return {f"{names[port.device]}/{port.port}": port for port in hca_ports}


def described_by(port: Port, *, of_device: bool = True) -> dict[str, str]:
    """Return a device, or one of its ports, as a part to be learned."""
    return {
        "name": port.device if of_device else port.name,
        "address": port.address if of_device else f"{port.address}/{port.port}",
        "guid": port.guid, "model": port.model, "driver": port.driver, "vendor": port.vendor, "role": port.role,
    }  # fmt: skip


def devices_of(hca_ports: Sequence[Port]) -> dict[str, Part]:
    """Return the devices by identity, as parts."""
    return {
        identity.rpartition("/")[0]: described_by(port) for identity, port in reversed(by_identity(hca_ports).items())
    }


def stated_for(port: Port, stated: Any) -> Any:  # noqa: ANN401  the value of a setting, or of one of its keys
    """Return what is stated for a port: for all of training, or by the port's name, address, GUID, board or role."""
    if isinstance(stated, Mapping):
        return next((stated[name] for name in port.names if name and name in stated), None)
    return stated if port.role == COMPUTE else None


def _devices(hca_ports: Sequence[Port]) -> list[str]:
    return list(dict.fromkeys(port.device for port in hca_ports))


def _read(node: Node) -> Iterator[Port]:
    devices = f"{node.paths.sysfs}/class/infiniband"
    for device in node.names(devices):
        folder = f"{devices}/{device}"
        function = node.real(f"{folder}/device")
        is_virtual = os.path.lexists(f"{function}/physfn") or "/devices/virtual/" in node.real(folder)
        if is_virtual or is_lent(function):
            continue
        own = guid(node.text(f"{folder}/node_guid") or "")
        model = node.text(f"{folder}/board_id") or node.text(f"{function}/device") or ""
        firmware = node.text(f"{folder}/fw_ver") or ""
        address, vendor = pci_address(function), node.text(f"{function}/vendor") or ""
        for port in node.names(f"{folder}/ports"):
            place = f"{folder}/ports/{port}"
            state, physical = (node.text(f"{place}/{name}") or "" for name in ("state", "phys_state"))
            layer = node.text(f"{place}/link_layer") or ""
            own_gid = gid_guid(node.text(f"{place}/gids/0") or "") if layer == INFINIBAND else ""
            yield Port(
                device, port, layer, code(state), code(physical),
                ", ".join(text.partition(":")[2].strip() for text in (state, physical) if text),
                rate(node.text(f"{place}/rate") or ""), own or own_gid, address, model, firmware,
                node.driver(function), vendor,
            )  # fmt: skip


def _with_roles(hcas: Sequence[Port], learned: Mapping[str, int], wanted: int) -> list[Port]:
    """Return the ports with their roles; ``wanted`` is how many are stated to be for training, 0 where that isn't."""
    fabric = [port for port in hcas if port.layer == INFINIBAND] or hcas
    near = [port for port in fabric if port.by_gpu]
    identity = {port.name: name for name, port in by_identity(hcas).items()}
    if len({port.device for port in fabric}) <= wanted:
        training = {port.name for port in fabric}
    elif 2 * len(near) >= len(fabric):
        training = {port.name for port in near}
    else:
        # A link that is down has no rate, so it counts as what it was.
        rates = {
            port.name: max(learned.get(identity[port.name], 0), (port.rate or 0) if port.up else 0) for port in fabric
        }
        most = max(rates.values(), default=0)
        training = {name for name, value in rates.items() if value in (0, most)}
    in_fabric = {port.name for port in fabric}
    return [
        replace(port, role=COMPUTE if port.name in training else STORAGE if port.name in in_fabric else MANAGEMENT)
        for port in hcas
    ]


def _limited(node: Node, hca_ports: Sequence[Port]) -> set[str]:
    """Return the devices that are the fabric manager's."""
    folder = node.paths.sysfs / "class/infiniband"
    rdma = [
        RdmaFunction(
            port.device, port.address, port.layer, node.text(folder / port.device / "device/device") or "",
            port.vendor, port.by_gpu,
        )
        for port in {port.device: port for port in hca_ports}.values()
    ]  # fmt: skip
    return fabric_functions(rdma, lambda device: _vital_data(node, device))


def _vital_data(node: Node, device: str) -> bytes:
    try:
        with (node.paths.sysfs / "class/infiniband" / device / "device/vpd").open("rb") as file:
            return file.read(_VPD_BYTES)
    except OSError:
        return b""
