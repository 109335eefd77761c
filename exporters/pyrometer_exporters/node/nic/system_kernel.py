"""The kernel of this machine; see :class:`~pyrometer_exporters.node.nic.kernel.Kernel`."""

from __future__ import annotations

from collections.abc import Mapping

from pyrometer_exporters.node.nic.ethtool import Statistics
from pyrometer_exporters.node.nic.kernel import Fec, LinkState
from pyrometer_exporters.node.nic.netlink import EthtoolNetlink


class SystemKernel:
    """One per device, as it keeps the names of its statistics; its worker alone uses it."""

    def __init__(self) -> None:
        self._statistics = Statistics()
        self._netlink = EthtoolNetlink()

    def statistics(self, interface: str) -> Mapping[str, int]:
        """See :class:`~pyrometer_exporters.node.nic.kernel.Kernel`."""
        return self._statistics.of(interface)

    def link_state(self, interface: str) -> LinkState:
        """See :class:`~pyrometer_exporters.node.nic.kernel.Kernel`."""
        return self._netlink.link_state(interface)

    def fec(self, interface: str) -> Fec:
        """See :class:`~pyrometer_exporters.node.nic.kernel.Kernel`."""
        return self._netlink.fec(interface)
