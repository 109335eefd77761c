"""Which devices there are: the folders ``class/infiniband`` and ``class/net``, listed without opening any file."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyrometer_exporters.framework.metrics import Down
from pyrometer_exporters.framework.worker import reason_of

Wanted = Callable[[str], bool]
# Device and inode of a folder.
Hardware = tuple[int, int] | None
# What a folder holds, each with its inode.
Names = list[tuple[str, int]]
LOOK_AGAIN_SECONDS = 60.0


@dataclass(frozen=True)
class Inventory:
    """The devices to read.

    Attributes:
        rdma: RDMA devices, each with the interfaces on its PCI function that may be read.
        interfaces: physical interfaces without RDMA.
        absent: what this node doesn't have, and why it seems so.
    """

    rdma: Mapping[str, tuple[str, ...]]
    interfaces: tuple[str, ...]
    absent: tuple[Down, ...]


def chosen(include: re.Pattern[str] | None, exclude: re.Pattern[str] | None) -> Wanted:
    """Whether a device is wanted, from at most one of the two flags."""
    if include is not None:
        return lambda name: include.match(name) is not None
    if exclude is not None:
        return lambda name: exclude.match(name) is None
    return lambda _name: True


class Lister:
    """Lists the devices of the tree at ``sysfs``.

    ``wanted`` decides for devices, ``may_read`` for the interfaces of RDMA devices. What hardware is behind a name is
    looked up again only where the name leads elsewhere, as its inode tells, and every minute.
    """

    def __init__(self, sysfs: str, wanted: Wanted, may_read: Wanted) -> None:
        self._infiniband, self._net = f"{sysfs}/class/infiniband", f"{sysfs}/class/net"
        self._wanted, self._may_read = wanted, may_read
        self._known: dict[str, tuple[int, Hardware]] = {}
        self._forget_at = float("-inf")
        self._listed: tuple[object, ...] = ()
        self._found = Inventory({}, (), ())

    def take_stock(self, now: float) -> Inventory:
        """The devices there are at the monotonic time ``now``; the same object as long as they are the same."""
        infiniband, no_infiniband = _list(self._infiniband, "infiniband")
        net, no_net = _list(self._net, "net")
        listed = infiniband, net, no_infiniband, no_net
        if listed != self._listed or now >= self._forget_at:
            if now >= self._forget_at:
                self._known, self._forget_at = {}, now + LOOK_AGAIN_SECONDS
            found = self._found_of(infiniband, net, (*no_infiniband, *no_net))
            self._found = self._found if found == self._found else found
            self._listed = listed
        return self._found

    def _found_of(self, infiniband: Names, net: Names, absent: tuple[Down, ...]) -> Inventory:
        functions, interfaces = self._behind(self._infiniband, infiniband), self._behind(self._net, net)
        physical = {name: key for name, key in interfaces.items() if key is not None}
        rdma = {
            name: tuple(i for i, key in physical.items() if key == function and self._may_read(i))
            for name, function in functions.items()
            if self._wanted(name)
        }
        # An excluded RDMA device's interface is not read on its own either: it leads to the same hardware.
        taken = set(functions.values())
        alone = tuple(i for i, key in physical.items() if key not in taken and self._wanted(i))
        return Inventory(rdma, alone, absent)

    def _behind(self, path: str, names: Names) -> dict[str, Hardware]:
        """The hardware behind each name of a folder, by name in their order."""
        return {name: self._hardware(f"{path}/{name}", inode) for name, inode in sorted(names)}

    def _hardware(self, path: str, inode: int) -> Hardware:
        known = self._known.get(path)
        if known is None or known[0] != inode:
            known = self._known[path] = inode, _hardware(f"{path}/device")
        return known[1]


def _list(path: str, part: str) -> tuple[Names, tuple[Down, ...]]:
    """The names in a folder in the kernel's order, with the inode of each: that of the link, where it is one."""
    try:
        with os.scandir(path) as entries:
            names = [(entry.name, entry.inode()) for entry in entries]
    except FileNotFoundError:
        return [], (Down(part, "no_device", f"{path} does not exist"),)
    except OSError as error:
        return [], (Down(part, reason_of(error), str(error)),)
    return names, () if names else (Down(part, "no_device", f"{path} is empty"),)


def _hardware(link: str) -> Hardware:
    """What a ``device`` link leads to; None for virtual interfaces and for the plain file ``bonding_masters``."""
    try:
        found = os.stat(link)  # noqa: PTH116  see Folder.refresh
    except OSError:
        return None
    return found.st_dev, found.st_ino
