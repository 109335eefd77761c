"""List the devices in ``class/infiniband`` and ``class/net`` without opening any file."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyrometer_exporters.framework.metrics import Down
from pyrometer_exporters.framework.outcome import reason_of

NameFilter = Callable[[str], bool]
# Device and inode of a folder.
FolderId = tuple[int, int] | None
# The names in a folder, each with its inode.
Names = list[tuple[str, int]]
LOOK_AGAIN_SECONDS = 60.0


@dataclass(frozen=True)
class Inventory:
    """The devices to read.

    Attributes:
        rdma: RDMA devices, each with the interfaces on its PCI function that may be read.
        interfaces: physical interfaces without RDMA.
        absent: what this node doesn't have, and the evidence for it.
    """

    rdma: Mapping[str, tuple[str, ...]]
    interfaces: tuple[str, ...]
    absent: tuple[Down, ...]


def name_filter(include: re.Pattern[str] | None, exclude: re.Pattern[str] | None) -> NameFilter:
    """Return the filter of device names from at most one of the two flags."""
    if include is not None:
        return lambda name: include.match(name) is not None
    if exclude is not None:
        return lambda name: exclude.match(name) is None
    return lambda _name: True


class DeviceLister:
    """Lists the devices of the tree at ``sysfs``.

    ``wanted`` filters devices, ``may_read`` the interfaces of RDMA devices. The hardware behind a name is resolved
    again only when the inode of the name changes, and once a minute.
    """

    def __init__(self, sysfs: str, wanted: NameFilter, may_read: NameFilter) -> None:
        self._infiniband, self._net = f"{sysfs}/class/infiniband", f"{sysfs}/class/net"
        self._wanted, self._may_read = wanted, may_read
        self._known: dict[str, tuple[int, FolderId]] = {}
        self._forget_at = float("-inf")
        self._listed: tuple[object, ...] = ()
        self._last = Inventory({}, (), ())

    def list_devices(self, now: float) -> Inventory:
        """List the devices at the monotonic time ``now``; return the same object while nothing changes."""
        infiniband, no_infiniband = _list(self._infiniband, "infiniband")
        net, no_net = _list(self._net, "net")
        listed = infiniband, net, no_infiniband, no_net
        if listed != self._listed or now >= self._forget_at:
            if now >= self._forget_at:
                self._known, self._forget_at = {}, now + LOOK_AGAIN_SECONDS
            inventory = self._inventory(infiniband, net, (*no_infiniband, *no_net))
            self._last = self._last if inventory == self._last else inventory
            self._listed = listed
        return self._last

    def _inventory(self, infiniband: Names, net: Names, absent: tuple[Down, ...]) -> Inventory:
        functions, interfaces = self._behind(self._infiniband, infiniband), self._behind(self._net, net)
        physical = {name: key for name, key in interfaces.items() if key is not None}
        rdma = {
            name: tuple(i for i, key in physical.items() if key == function and self._may_read(i))
            for name, function in functions.items()
            if self._wanted(name)
        }
        # The interface of an excluded RDMA device is not read on its own either: it is the same hardware.
        taken = set(functions.values())
        alone = tuple(i for i, key in physical.items() if key not in taken and self._wanted(i))
        return Inventory(rdma, alone, absent)

    def _behind(self, path: str, names: Names) -> dict[str, FolderId]:
        """Resolve the hardware behind each name of a folder, in order of the names."""
        return {name: self._hardware(f"{path}/{name}", inode) for name, inode in sorted(names)}

    def _hardware(self, path: str, inode: int) -> FolderId:
        resolved = self._known.get(path)
        if resolved is None or resolved[0] != inode:
            resolved = self._known[path] = inode, _hardware(f"{path}/device")
        return resolved[1]


def _list(path: str, part: str) -> tuple[Names, tuple[Down, ...]]:
    """List the names in a folder in the kernel's order, each with its inode (of the link itself, for a link)."""
    try:
        with os.scandir(path) as entries:
            names = [(entry.name, entry.inode()) for entry in entries]
    except FileNotFoundError:
        return [], (Down(part, "no_device", f"{path} does not exist"),)
    except OSError as error:
        return [], (Down(part, reason_of(error), str(error)),)
    return names, () if names else (Down(part, "no_device", f"{path} is empty"),)


def _hardware(link: str) -> FolderId:
    """Resolve a ``device`` link; None for virtual interfaces and for the plain file ``bonding_masters``."""
    try:
        target = os.stat(link)  # noqa: PTH116  see Folder.refresh
    except OSError:
        return None
    return target.st_dev, target.st_ino
