"""Whether a link that was never seen up is expected to be: only when all its peers are.

A second port that nobody ever cabled must not alarm (NVIDIA's NVSentinel #1361), a new node on which one cable of
eight is missing must. So the evidence has to be positive: at least three others of the same board and port are up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from pyrometer_exporters.node.nic.readings import DeviceReading, PortReading

LEAST_PEERS = 3


def expected_by_peers(devices: Sequence[DeviceReading]) -> set[tuple[str, str]]:
    """The device and port of each link that is down while all its peers on this node are up."""
    groups: dict[tuple[str, ...], list[tuple[str, PortReading]]] = defaultdict(list)
    for device in devices:
        for port in device.ports:
            if device.board and not device.link_is_constant:
                groups[_role(device, port)].append((device.name, port))
    expected = set()
    for group in groups.values():
        down = [(name, port.port) for name, port in group if port.active is not True]
        if len(down) == 1 and len(group) > LEAST_PEERS:
            expected.update(down)
    return expected


def _role(device: DeviceReading, port: PortReading) -> tuple[str, ...]:
    """Cards of one kind have one board id; the ports of a card with two are its PCI functions .0 and .1."""
    return device.board, port.link_layer, port.port, device.place.pci_bus_id.rpartition(".")[2]
