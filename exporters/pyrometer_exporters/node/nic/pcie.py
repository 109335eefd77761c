"""The PCIe path from a device up to its root port, hop by hop, and the GPU nearest to the device.

A hop can do as much as the weaker of its two ends: a Gen5 card in a Gen4 slot is healthy, a switch above it that
trained at half its width is not, and the card itself doesn't show it. The width is always reported. The speed is
reported only while the device is busy: idle links drop to the lowest speed on purpose.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TypeVar

from pyrometer_exporters.framework.metrics import Families
from pyrometer_exporters.node.nic.parse import number
from pyrometer_exporters.node.nic.readings import DeviceAccess, Hop
from pyrometer_exporters.node.nic.sysfs import small_text
from pyrometer_exporters.node.nic.tiers import IDENTITY

# A device is busy from this many bytes per second: 1 % of a 100 Gb/s link.
BUSY_BYTES_PER_SECOND = 125_000_000
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.ASCII)
_SPEED = re.compile(r"\s*(\d{1,4}(?:\.\d{1,3})?)\s*GT/s", re.ASCII)
# The kernel writes "Unknown", 0 or 255 where it doesn't know.
_WIDTHS = frozenset({1, 2, 4, 8, 12, 16, 32})
# Display and accelerator controllers (PCI class 03 and 12) of NVIDIA and AMD.
_GPU_VENDORS, _GPU_CLASSES = ("0x10de", "0x1002"), ("0x03", "0x12")

T = TypeVar("T", int, float)
# fmt: off
FAMILIES = Families("device", "pci_bus_id")
WIDTH = FAMILIES.gauge("pyrometer_nic_pcie_link_width", "Lanes of the PCIe link above this function.")
WIDTH_MAX = FAMILIES.gauge("pyrometer_nic_pcie_link_width_max",
    "Lanes that both ends of the PCIe link above this function have.")
SPEED = FAMILIES.gauge("pyrometer_nic_pcie_link_transfers_per_second",
    "Transfers per second and lane of the PCIe link above this function; absent unless the device is busy.")
SPEED_MAX = FAMILIES.gauge("pyrometer_nic_pcie_link_transfers_max_per_second",
    "Transfers per second and lane that both ends of the PCIe link above this function can do.")
# fmt: on


def read_hops(access: DeviceAccess, path: str, *, busy: bool) -> tuple[Hop, ...]:
    """Read the links from the device at the real ``path`` up to its root port, every 300 s; speeds if ``busy``."""
    return access.cache.get(IDENTITY, ("pcie", path, busy), lambda: _hops(access, path, busy=busy))


def functions(path: str) -> list[str]:
    """List the folders of the PCI functions on a path, from the device's own up to its root port."""
    parts = path.split("/")
    ends = [end for end in range(len(parts), 0, -1) if _ADDRESS.fullmatch(parts[end - 1])]
    return ["/".join(parts[:end]) for end in ends]


def nearest(path: str, gpus: Sequence[str]) -> str:
    """Return the PCI address of the GPU with the longest shared path; empty where no GPU shares a root port.

    Several on one switch: the GPU with the nearest address. ``path`` and ``gpus`` are real paths of functions.
    """
    way = functions(path)
    shared = [(len(set(way) & set(functions(gpu))), gpu.rpartition("/")[2]) for gpu in gpus]
    closest = [(count, address) for count, address in shared if count > 0]
    bus = _bus(path.rpartition("/")[2])
    return max(closest, key=lambda entry: (entry[0], -abs(_bus(entry[1]) - bus)), default=(0, ""))[1]


class Gpus:
    """The GPUs of the node, and the nearest GPU of each device.

    The bus is listed every 300 s; its hundreds of devices are read only when the list has changed.
    """

    def __init__(self, sysfs: str) -> None:
        self._sysfs = sysfs
        self._listed_at = float("-inf")
        self._names: Sequence[str] = ()
        self._paths: tuple[str, ...] = ()
        self._nearest: dict[str, str] = {}

    def refresh(self, now: float) -> None:
        """List the GPUs again if 300 s have passed; ``now`` is monotonic."""
        if now - self._listed_at >= IDENTITY.seconds:
            self._listed_at = now
            self._list()

    def _list(self) -> None:
        folder = f"{self._sysfs}/bus/pci/devices"
        names = _names(folder)
        if names != self._names:
            self._names = names
            paths = (f"{folder}/{name}" for name in names)
            self._paths = tuple(os.path.realpath(path) for path in paths if _is_gpu(path))
            self._nearest.clear()

    def nearest(self, path: str) -> str:
        """Return the nearest GPU as :func:`nearest` does; empty for a device that is on no PCI bus."""
        if path not in self._nearest:
            self._nearest[path] = nearest(path, self._paths) if path else ""
        return self._nearest[path]


def _names(folder: str) -> Sequence[str]:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208
    except OSError:
        return ()


def _is_gpu(path: str) -> bool:
    return small_text(f"{path}/vendor") in _GPU_VENDORS and small_text(f"{path}/class").startswith(_GPU_CLASSES)


def _bus(address: str) -> int:
    parts = address.split(":")
    try:
        return int(parts[0], 16) << 8 | int(parts[1], 16)
    except (IndexError, ValueError):
        return 0


def _hops(access: DeviceAccess, path: str, *, busy: bool) -> tuple[Hop, ...]:
    chain = [(folder.rpartition("/")[2], _ends(access, folder)) for folder in functions(path)]
    hops = []
    # From the device up: the device and the port above it, then a switch's upper port and the one above, and so on.
    # Between the two ports of a switch there is no link.
    for index in range(0, len(chain), 2):
        function, (width, speed, width_max, speed_max) = chain[index]
        # Without a root port, as in some virtual machines, nothing is above.
        _, _, up_width, up_speed = chain[index + 1][1] if index + 1 < len(chain) else (None,) * 4
        trained = speed if busy else None
        hops.append(Hop(function, width, _weaker(width_max, up_width), trained, _weaker(speed_max, up_speed)))
    return tuple(hops)


def _ends(access: DeviceAccess, path: str) -> tuple[int | None, float | None, int | None, float | None]:
    """Read width, speed, largest width and largest speed of a function."""
    try:
        folder = access.folders.get(path)
    except OSError:
        return None, None, None, None
    return (
        lanes(folder.text("current_link_width")),
        transfers(folder.text("current_link_speed")),
        lanes(folder.text("max_link_width")),
        transfers(folder.text("max_link_speed")),
    )


def lanes(text: str | None) -> int | None:
    """Parse ``16``, the lanes of a link; None where the kernel doesn't know."""
    width = number(text) if text is not None else None
    return width if width in _WIDTHS else None


def transfers(text: str | None) -> float | None:
    """Parse ``32.0 GT/s PCIe`` or ``8 GT/s`` into transfers per second and lane; None where the kernel doesn't know."""
    match = _SPEED.match(text or "")
    return float(match[1]) * 1e9 if match else None


def _weaker(lower: T | None, upper: T | None) -> T | None:
    values = [value for value in (lower, upper) if value is not None]
    return min(values) if values else None
