"""The kernel's answers about interfaces, which no file has: ethtool's statistics, link states and FEC."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Any

from pyrometer_exporters.node.nic.netlink import Fec, LinkState


class SimulatedKernel:
    """A kernel that knows what it is told; without an answer it says EOPNOTSUPP, as the real one does.

    Attributes:
        known: answers by question (``statistics``, ``link_state``, ``fec``) and interface.
        asked: the questions so far.
    """

    def __init__(self) -> None:
        self.known: dict[tuple[str, str], Any] = {}
        self.asked: list[tuple[str, str]] = []

    def count(self, interface: str, statistic: str, by: int) -> None:
        """Let a statistic of an interface rise."""
        counts = self.known.setdefault(("statistics", interface), {})
        counts[statistic] = counts.get(statistic, 0) + by

    def statistics(self, interface: str) -> Mapping[str, int]:
        """Return ethtool's statistics of an interface. Raises OSError."""
        found: Mapping[str, int] = self._answer("statistics", interface)
        return found

    def link_state(self, interface: str) -> LinkState:
        """Return why a link is down. Raises OSError."""
        found: LinkState = self._answer("link_state", interface)
        return found

    def fec(self, interface: str) -> Fec:
        """Return what forward error correction does and counts. Raises OSError."""
        found: Fec = self._answer("fec", interface)
        return found

    def _answer(self, what: str, interface: str) -> Any:  # noqa: ANN401  whatever it was told
        self.asked.append((what, interface))
        if (what, interface) not in self.known:
            raise OSError(errno.EOPNOTSUPP, "not supported")
        return self.known[what, interface]
