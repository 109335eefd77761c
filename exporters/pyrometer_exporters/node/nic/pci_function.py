"""The PCI function and the driver behind a device's ``device`` link.

``readlink -f /sys/class/infiniband/mlx5_0/device`` prints ``/sys/devices/pci0000:15/0000:15:01.0/0000:18:00.0``.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from pyrometer_exporters.node.nic.parse import pci_address, setting
from pyrometer_exporters.node.nic.sysfs import Folder, small_text

_IFF_SLAVE = 0x800
_USB = re.compile(r"/usb\d+/")


@dataclass(frozen=True)
class PciFunction:
    """The function that a device sits on: ``address`` as ``0000:18:00.0``, ``driver`` as ``mlx5_core``.

    ``path`` is its real path in sysfs, ``numa_node`` the kernel's number of its node; all are empty where unknown.
    ``virtual``: it is a virtual function (SR-IOV), which pods and virtual machines take and give back, or one that a
    cloud's host lends to a virtual machine.
    ``by_usb``: the device sits on a USB bus behind the function, as the network of a BMC does. ``soft``: it has no
    hardware at all, as soft-RoCE (rxe, siw) hasn't: the kernel keeps it in ``devices/virtual``.
    """

    address: str
    driver: str
    path: str = ""
    numa_node: str = ""
    virtual: bool = False
    by_usb: bool = False
    soft: bool = False


class PciFunctionReader:
    """Resolves the link once per folder: the path of a device doesn't change while the device lives."""

    def __init__(self) -> None:
        self._inode = 0
        self._function = PciFunction("", "")

    def of(self, folder: Folder) -> PciFunction:
        """Return the function of the device whose class folder this is; the same object while the folder lives."""
        if folder.inode != self._inode:
            device = f"{folder.path}/device"
            path = os.path.realpath(device) if "device" in folder.names else ""
            driver, numa_node = link_name(f"{device}/driver"), small_text(f"{path}/numa_node")
            virtual = bool(path) and (os.path.lexists(f"{path}/physfn") or is_lent(path))
            self._function = PciFunction(
                pci_address(path), driver, path, numa_node if numa_node.isdecimal() else "", virtual,
                by_usb=_USB.search(path) is not None,
                soft=not path and "/devices/virtual/" in os.path.realpath(folder.path),
            )  # fmt: skip
            self._inode = folder.inode
        return self._function


def is_lent(function: str) -> bool:
    """Return whether a function is the fast path of a synthetic interface: Azure's accelerated networking.

    The host takes it away when it services the machine, and may give another one back (Linux:
    drivers/net/hyperv/netvsc_drv.c sets IFF_SLAVE, as bonds do).
    """
    try:
        interfaces = os.listdir(f"{function}/net")  # noqa: PTH208  a path as text, as in all of this package
    except OSError:
        return False
    return any(_is_lent(f"{function}/net/{name}") for name in interfaces)


def _is_lent(interface: str) -> bool:
    if not (setting(small_text(f"{interface}/flags")) or 0) & _IFF_SLAVE:
        return False
    return os.path.isdir(f"{interface}/master") and not os.path.isdir(f"{interface}/master/bonding")  # noqa: PTH112


def link_name(link: str) -> str:
    """Return the last name in a link's target, such as a driver's; empty where there is no link."""
    try:
        return os.readlink(link).rpartition("/")[2]  # noqa: PTH115  the name as written, not a path to follow
    except OSError:
        return ""
