"""Which devices there are: the folders ``class/infiniband`` and ``class/net``, listed without opening any file."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyrometer_exporters.framework.metrics import Down
from pyrometer_exporters.framework.worker import reason_of

Wanted = Callable[[str], bool]


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


def take_stock(sysfs: str, wanted: Wanted, may_read: Wanted) -> Inventory:
    """List the devices. ``wanted`` decides for devices, ``may_read`` for the interfaces of RDMA devices."""
    infiniband, net = f"{sysfs}/class/infiniband", f"{sysfs}/class/net"
    devices, no_infiniband = _list(infiniband, "infiniband")
    interfaces, no_net = _list(net, "net")
    behind = {name: _hardware(f"{net}/{name}/device") for name in interfaces}
    physical = {name: key for name, key in behind.items() if key is not None}
    functions = {name: _hardware(f"{infiniband}/{name}/device") for name in devices}
    rdma = {
        name: tuple(sorted(i for i, key in physical.items() if key == functions[name] and may_read(i)))
        for name in devices
        if wanted(name)
    }
    # An excluded RDMA device's interface is not read on its own either: it leads to the same hardware.
    taken = set(functions.values())
    alone = tuple(sorted(i for i, key in physical.items() if key not in taken and wanted(i)))
    return Inventory(rdma, alone, (*no_infiniband, *no_net))


def _list(path: str, part: str) -> tuple[list[str], tuple[Down, ...]]:
    try:
        names = sorted(os.listdir(path))  # noqa: PTH208  names are wanted, not paths
    except FileNotFoundError:
        return [], (Down(part, "no_device", f"{path} does not exist"),)
    except OSError as error:
        return [], (Down(part, reason_of(error), str(error)),)
    return names, () if names else (Down(part, "no_device", f"{path} is empty"),)


def _hardware(link: str) -> tuple[int, int] | None:
    """What a ``device`` link leads to; None for virtual interfaces and for the plain file ``bonding_masters``."""
    try:
        found = os.stat(link)  # noqa: PTH116  see Folder.refresh
    except OSError:
        return None
    return found.st_dev, found.st_ino
