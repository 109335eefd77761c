"""What the kernel says of an interface beside sysfs: driver statistics by ioctl, link state and FEC by netlink.

Asked only where ``--path.sysfs`` is ``/sys``: both speak of this machine's interfaces, whatever tree is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class LinkState:
    """What ethtool's netlink says of a link.

    Attributes:
        reason: why it is down, such as ``no_cable``; empty where it is up or the driver doesn't say.
        downs: how often the physical link went down, 32 bits; None where the driver doesn't count.
    """

    reason: str = ""
    downs: int | None = None


@dataclass(frozen=True)
class Fec:
    """Forward error correction: its mode (``rs``, ``baser``, ``llrs``, ``off``) and blocks since the driver started."""

    mode: str = ""
    corrected: int | None = None
    uncorrectable: int | None = None


class Kernel(Protocol):
    """The questions; each raises ``OSError`` where the kernel or the driver has no answer."""

    def statistics(self, interface: str) -> Mapping[str, int]:
        """The driver's statistics by name, as ``ethtool -S`` prints them."""

    def link_state(self, interface: str) -> LinkState:
        """The state of the link, as ``ethtool`` prints it with ``-I``."""

    def fec(self, interface: str) -> Fec:
        """Forward error correction, as ``ethtool -I --show-fec`` prints it."""
