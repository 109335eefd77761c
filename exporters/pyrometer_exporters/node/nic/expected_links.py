"""Decide whether a link that was never seen up is expected to be up: only if all its peers are up.

A second port that nobody ever cabled must not alarm (NVIDIA's NVSentinel #1361); a new node with one missing cable of
eight must. So the evidence has to be positive: at least three other links of the same board and port are up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from pyrometer_exporters.node.nic.readings import DeviceReading, PortReading

LEAST_PEERS = 3


def expected_by_peers(devices: Sequence[DeviceReading]) -> set[tuple[str, str]]:
    """Return the device and port of each link that is down while all its peers on this node are up."""
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
    """Return the key of like ports: one card model has one board id; a dual card's ports are functions .0, .1."""
    return device.board, port.link_layer, port.port, device.pci.address.rpartition(".")[2]
