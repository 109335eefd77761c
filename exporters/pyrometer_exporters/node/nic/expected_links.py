"""Decide which links are expected to be up though they never were, and which devices are missing.

A second port that nobody ever cabled must not alarm (NVIDIA's NVSentinel #1361); a new node with one or two missing
cables of eight must. So the evidence has to be positive: at least three times as many like links are up as are down.
Like are ports of one board, with the same number, that all have a GPU beside them or all have none: storage ports are
like each other, not like those that carry a GPU's traffic.

A device that was there and is gone is missing unless somebody took it: a pod (SR-IOV, exclusive RDMA namespaces), a
virtual machine (vfio), an administrator who unloaded the driver or excluded the device, or whoever put another card
into its slot.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from pyrometer_exporters.node.nic.link_down import PortMemory
from pyrometer_exporters.node.nic.readings import DeviceReading, PortReading
from pyrometer_exporters.node.nic.sysfs import small_text

LEAST_PEERS = 3
# Peers that are up for each link that is down.
PEERS_UP = 3
# A device that is gone for so long was taken out of the node for good.
FORGOTTEN_SECONDS = 7 * 86400.0
OFF_BUS, NO_DRIVER, NO_RDMA = "off_bus", "no_driver", "no_rdma_device"


def expected_by_peers(
    devices: Sequence[DeviceReading], gpu_of: Callable[[str], str] = lambda _path: ""
) -> set[tuple[str, str]]:
    """Return the device and port of each link that is down while nearly all its peers on this node are up.

    Args:
        devices: all devices of the node.
        gpu_of: returns the GPU nearest to a PCI path; empty where there is none.
    """
    groups: dict[tuple[str, ...], list[tuple[str, PortReading]]] = defaultdict(list)
    for device in devices:
        for port in device.ports:
            if device.board and not device.link_is_constant:
                near_gpu = bool(gpu_of(device.pci.path))
                groups[(*_role(device, port), str(near_gpu))].append((device.name, port))
    expected = set()
    for group in groups.values():
        down = [(name, port.port) for name, port in group if port.active is not True]
        if len(group) - len(down) >= max(LEAST_PEERS, PEERS_UP * len(down)):
            expected.update(down)
    return expected


def _role(device: DeviceReading, port: PortReading) -> tuple[str, ...]:
    """Return the key of like ports: one card model has one board id; a dual card's ports are functions .0, .1."""
    return device.board, port.link_layer, port.port, device.pci.address.rpartition(".")[2]


class MissingDevice(NamedTuple):
    """A device that was there; ``reason`` is one of OFF_BUS, NO_DRIVER, NO_RDMA."""

    device: str
    pci_bus_id: str
    reason: str


class MissingDevices:
    """Finds the devices that a node has lost, by the memories of their ports and the PCI bus at ``sysfs``."""

    def __init__(self, sysfs: str, wanted: Callable[[str], bool]) -> None:
        self._pci = f"{sysfs}/bus/pci"
        self._netns_mode = f"{sysfs}/module/ib_core/parameters/netns_mode"
        self._wanted = wanted

    def missing(
        self, memories: Iterable[PortMemory], unread: Collection[str], addresses: Collection[str], now: float
    ) -> Iterator[MissingDevice]:
        """Yield each missing device once.

        Args:
            memories: of all ports ever seen.
            unread: the names of the devices that are listed and don't answer.
            addresses: the PCI addresses of the devices that were read.
            now: wall time, in seconds since the epoch.
        """
        told = set()
        for memory in memories:
            if not memory.device or memory.device in unread or memory.pci_bus_id in addresses:
                memory.missing_since = None
                continue
            reason = self._reason(memory) if self._wanted(memory.device) else ""
            memory.missing_since = (memory.missing_since or now) if reason else None
            forgotten = memory.missing_since is not None and now - memory.missing_since >= FORGOTTEN_SECONDS
            if reason and not forgotten and memory.pci_bus_id not in told:
                told.add(memory.pci_bus_id)
                yield MissingDevice(memory.device, memory.pci_bus_id, reason)

    def _reason(self, memory: PortMemory) -> str:
        """Return why the device is missing; empty where somebody took it."""
        if not os.path.isdir(f"{self._pci}/drivers/{memory.driver}"):  # noqa: PTH112  at every scrape
            return ""  # unloaded, as openibd does for a minute
        function = f"{self._pci}/devices/{memory.pci_bus_id}"
        if not os.path.isdir(function):  # noqa: PTH112
            return OFF_BUS
        try:
            driver = os.readlink(f"{function}/driver").rpartition("/")[2]  # noqa: PTH115
        except OSError:
            return NO_DRIVER
        return NO_RDMA if driver == memory.driver and self._shares_rdma() else ""

    def _shares_rdma(self) -> bool:
        """Return whether RDMA devices stay in the host's namespace whoever uses them: the kernel's default."""
        return small_text(self._netns_mode) != "N"
