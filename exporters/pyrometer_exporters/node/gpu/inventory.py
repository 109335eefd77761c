"""List the GPUs of the node before any is opened, and select those to open.

Sources: ``<sysfs>/bus/pci/devices/0000:18:00.0/vendor`` (``0x10de``) and ``class`` (``0x030200``: a 3D controller);
``<sysfs>/bus/pci/devices/0000:18:00.0/driver``, a link to ``../../../bus/pci/drivers/nvidia``, and ``physfn``, a link
that only a virtual function of a GPU has;
``<procfs>/driver/nvidia/gpus/0000:18:00.0/information``, a line of which is ``GPU UUID: 	 GPU-4cf8db2d-...``;
``/dev/nvidia0`` and so on, one of each GPU that this process may be given.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyrometer_exporters.node.nic.sysfs import small_text

NVIDIA_VENDOR = "0x10de"
NVIDIA_DRIVER = "nvidia"
DISPLAY_CLASS = "0x03"  # VGA controllers 0x0300, 3D controllers 0x0302; an NVSwitch is a bridge, 0x0680
# Drivers that hold a device for a virtual machine: vfio-pci and its variants (nvgrace_gpu_vfio_pci), Xen's, the stub.
_GIVEN_AWAY = re.compile(r"vfio|^pciback$|^xen_pciback$|^pci-stub$")


def kernel_pci_id(pci_bus_id: str) -> str:
    """Spell a PCI address as the kernel does; empty remains empty.

    >>> kernel_pci_id("00000000:AF:00.0")
    '0000:af:00.0'
    """
    domain, _, rest = pci_bus_id.lower().partition(":")
    if not rest:
        return ""
    return f"{domain.lstrip('0'):0>4}:{rest}"


def nvml_pci_id(pci_bus_id: str) -> str:
    """Spell a PCI address as NVML and DCGM do.

    >>> nvml_pci_id("0000:af:00.0")
    '00000000:AF:00.0'
    """
    domain, _, rest = pci_bus_id.upper().partition(":")
    return f"{domain:0>8}:{rest}"


@dataclass(frozen=True)
class Candidate:
    """A GPU that hasn't been opened: its number in NVML's order, and the address and UUID if known without NVML."""

    index: int
    pci_bus_id: str | None = None
    uuid: str | None = None


@dataclass(frozen=True)
class Selection:
    """``--collector.gpu.device-include`` and ``-exclude``: matched with index, UUID and PCI address."""

    include: re.Pattern[str] | None = None
    exclude: re.Pattern[str] | None = None

    def takes(self, index: int | None, pci_bus_id: str | None, uuid: str | None) -> bool:
        """Return whether a GPU is to be used; unknown names don't match."""
        names = [] if index is None else [str(index)]
        if uuid:
            names.append(uuid)
        if pci_bus_id:
            names += [kernel_pci_id(pci_bus_id), nvml_pci_id(pci_bus_id)]
        if self.include is not None:
            return any(self.include.match(name) for name in names)
        return self.exclude is None or not any(self.exclude.match(name) for name in names)

    def refuses(self, pci_bus_id: str, uuid: str | None) -> bool:
        """Return whether a GPU is certainly not to be used, whatever its index turns out to be."""
        return self.include is None and not self.takes(None, pci_bus_id, uuid)


class PciBus:
    """The NVIDIA GPUs on the PCI bus. Vendor and class of a device are read once, as they never change.

    GPUs that are assigned to a virtual machine are left out, and so are virtual functions: the driver rightly presents
    neither.
    """

    def __init__(self, sysfs: Path) -> None:
        self._folder = sysfs / "bus" / "pci" / "devices"
        self._is_gpu: dict[str, bool] = {}
        self._taken: dict[str, tuple[int, int]] = {}
        self._times = itertools.count(1)
        self.given_away: frozenset[str] = frozenset()
        """GPUs that virtual machines had at the last look."""
        self.held: Mapping[str, int] | None = None
        """GPUs that the NVIDIA driver had at the last look, each with a number that is another each time that the
        driver takes it; None before the first look."""

    def gpus(self) -> list[str] | None:
        """Return the PCI addresses in order, or None if sysfs can't be read."""
        try:
            addresses = sorted(os.listdir(self._folder))  # noqa: PTH208  at every scrape, so not through pathlib
        except OSError:
            return None
        self._is_gpu = {address: self._known_or_read(address) for address in addresses}
        gpus = [address for address, is_gpu in self._is_gpu.items() if is_gpu]
        drivers = {address: self._driver(address) for address in gpus}
        self.given_away = frozenset(address for address, (name, _) in drivers.items() if _GIVEN_AWAY.search(name))
        self._take({address: inode for address, (name, inode) in drivers.items() if name == NVIDIA_DRIVER})
        return [address for address in gpus if address not in self.given_away]

    def _driver(self, address: str) -> tuple[str, int]:
        """Return the name of the driver that has a GPU, and the link's inode, which changes each time one takes it."""
        link = f"{self._folder}/{address}/driver"
        try:
            return os.readlink(link).rpartition("/")[2], os.lstat(link).st_ino  # noqa: PTH115  as cheap as it gets
        except OSError:  # it has no driver: unbound, or the driver is not loaded
            return "", 0

    def _take(self, inodes: Mapping[str, int]) -> None:
        before = self._taken
        self._taken = {
            address: before[address] if before.get(address, (0, 0))[0] == inode else (inode, next(self._times))
            for address, inode in inodes.items()
        }
        self.held = {address: number for address, (_, number) in self._taken.items()}

    def _known_or_read(self, address: str) -> bool:
        is_gpu = self._is_gpu.get(address)
        return is_gpu if is_gpu is not None else _is_nvidia_gpu(f"{self._folder}/{address}")


def _is_nvidia_gpu(device: str) -> bool:
    # The texts are empty if it was unplugged between listing and reading.
    if small_text(f"{device}/vendor") != NVIDIA_VENDOR or os.path.lexists(f"{device}/physfn"):
        return False
    return small_text(f"{device}/class").startswith(DISPLAY_CLASS)


def withheld(count: int, held: int, devices: Path = Path("/dev")) -> str:
    """Say why the driver lists this process fewer GPUs than it has, without a fault; empty if no reason is known.

    A container or a batch job may be given some: by the variable of NVIDIA's container runtime, by devices that are not
    there (CDI, ``--device``, a MIG instance), or by a control group that forbids to open them, as access(2) says.

    Args:
        count: how many it lists.
        held: how many it has on the bus; 0 where that can't be seen.
        devices: this process's own devices, in a container not the host's.
    """
    if 0 < held <= count:
        return ""
    given = f"this process is given {count} of {held or 'more'} GPUs"
    visible = os.environ.get("NVIDIA_VISIBLE_DEVICES", "all")
    if visible != "all":
        return f"{given}: NVIDIA_VISIBLE_DEVICES={visible}"
    try:
        files = [path for path in devices.iterdir() if re.fullmatch(r"nvidia\d+", path.name)]
    except OSError:
        return ""
    usable = sum(os.access(path, os.R_OK | os.W_OK) for path in files)
    return f"{given}: it may open {usable} of their devices" if files and usable < held else ""


def candidates(count: int, on_bus: list[str] | None, procfs: Path) -> list[Candidate]:
    """Return the GPUs that NVML presents, with PCI address and UUID where these are known without opening them.

    NVML numbers GPUs in the order of their PCI addresses. It may present fewer than the bus has (in a container, or
    where it can't use one): the kernel driver's own list may still match, else only the number is known.
    """
    for addresses in (on_bus, _known_to_driver(procfs)):
        if addresses is not None and len(addresses) == count:
            return [
                Candidate(index, address, uuid_from_proc(procfs, address)) for index, address in enumerate(addresses)
            ]
    return [Candidate(index) for index in range(count)]


def _known_to_driver(procfs: Path) -> list[str] | None:
    try:
        return sorted(entry.name for entry in (procfs / "driver/nvidia/gpus").iterdir())
    except OSError:
        return None


def uuid_from_proc(procfs: Path, address: str) -> str | None:
    """Return a GPU's UUID from the driver's procfs; None if that has none."""
    try:
        text = (procfs / "driver/nvidia/gpus" / address / "information").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    uuid = re.search(r"^GPU UUID:\s*(GPU-[0-9a-fA-F-]+)\s*$", text, re.MULTILINE)
    return uuid.group(1) if uuid else None
