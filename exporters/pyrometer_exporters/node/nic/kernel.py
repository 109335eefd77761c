"""Ask the kernel about an interface beyond sysfs: driver statistics by ioctl, link state and FEC by netlink.

Used only where ``--path.sysfs`` is ``/sys``: both describe this machine's interfaces, whatever tree is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from pyrometer_exporters.node.nic.ethtool import Statistics
from pyrometer_exporters.node.nic.netlink import EthtoolNetlink, Fec, LinkState


class Kernel(Protocol):
    """Questions about one interface; each raises ``OSError`` where the kernel or the driver has no answer."""

    def statistics(self, interface: str) -> Mapping[str, int]:
        """Return the driver's statistics by name, as ``ethtool -S`` prints them."""
        ...

    def link_state(self, interface: str) -> LinkState:
        """Return the state of the link, as ``ethtool -I`` prints it."""
        ...

    def fec(self, interface: str) -> Fec:
        """Return the forward error correction, as ``ethtool -I --show-fec`` prints it."""
        ...


class SystemKernel(Statistics, EthtoolNetlink):
    """The kernel of this machine.

    Create one per device: it caches the names of the device's statistics and belongs to the thread that reads it.
    """
