"""Where a device sits: the PCI function and the driver behind its ``device`` link.

``readlink -f /sys/class/infiniband/mlx5_0/device`` gives ``/sys/devices/pci0000:15/0000:15:01.0/0000:18:00.0``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from pyrometer_exporters.node.nic.parse import pci_address
from pyrometer_exporters.node.nic.sysfs import Folder


@dataclass(frozen=True)
class Place:
    """``pci_bus_id`` as ``0000:18:00.0``, ``driver`` as ``mlx5_core``; empty where there is none.

    ``path`` is the real one of the PCI function, ``numa_node`` the kernel's number of its node.
    """

    pci_bus_id: str
    driver: str
    path: str = ""
    numa_node: str = ""


class Hardware:
    """Resolves the link once per folder: the path of a device doesn't change while it lives."""

    def __init__(self) -> None:
        self._inode = 0
        self._place = Place("", "")

    def of(self, folder: Folder) -> Place:
        """The place of the device whose class folder this is."""
        if folder.inode != self._inode:
            device = f"{folder.path}/device"
            linked = "device" in folder.names
            path = os.path.realpath(device) if linked else ""
            self._place = Place(pci_address(path), _target(f"{device}/driver"), path, _numa_node(f"{path}/numa_node"))
            self._inode = folder.inode
        return self._place


def _numa_node(file: str) -> str:
    """``0``; empty for ``-1``, which is what the kernel writes where there is only one."""
    try:
        with open(file, encoding="ascii") as opened:
            text = opened.read(16).strip()
    except (OSError, ValueError):
        return ""
    return text if text.isdecimal() else ""


def _target(link: str) -> str:
    try:
        return os.readlink(link).rpartition("/")[2]  # noqa: PTH115  the name as written, not a path to follow
    except OSError:
        return ""
