"""Keep the memory of each port: identified by hardware rather than by name, and kept across restarts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from pyrometer_exporters.node.nic.link_down import (
    FABRIC_MANAGER,
    LONGEST_SETTLING_SECONDS,
    NO_HARDWARE,
    USB,
    VIRTUAL,
    PortMemory,
    PortObservation,
)
from pyrometer_exporters.node.nic.readings import DeviceReading, PortReading
from pyrometer_exporters.node.nic.state import PortStateFile
from pyrometer_exporters.node.nic.sysfs import small_text

# Ports that are absent and still remembered: hardware that is moved or replaced, and virtual functions, which may get a
# new GUID for every job. All of them are compared at each scrape.
MAX_ABSENT = 128
BOOT_SECONDS = LONGEST_SETTLING_SECONDS


class Boot(NamedTuple):
    """``id`` is the kernel's, such as ``4f1d5c2e-...``; empty where procfs is missing, and then boots go unnoticed."""

    id: str
    under_way: bool


class PortMemories:
    """Looks up and updates the memory of each port that was read."""

    def __init__(self, store: PortStateFile, procfs: Path) -> None:
        self._ports = store.load()
        self._boot_id, self._uptime = f"{procfs}/sys/kernel/random/boot_id", f"{procfs}/uptime"
        self._boot = Boot("", under_way=True)
        self._devices: list[tuple[str, str, str]] = []
        self._keys: list[str] = []
        self._present: set[str] = set()  # at the last scrape

    @property
    def ports(self) -> dict[str, PortMemory]:
        """All memories, by key."""
        return self._ports

    @property
    def booting(self) -> bool:
        """True while the node's boot is under way."""
        return self._boot.under_way

    def update(
        self, devices: Sequence[DeviceReading], now: float
    ) -> Iterator[tuple[DeviceReading, PortMemory | None, list[tuple[PortReading, PortMemory]]]]:
        """Update the memories at the wall time ``now``; yield each device, its own memory (or None) and its ports'."""
        boot = self._present_boot()
        present: set[str] = set()
        for device, key in zip(devices, self._keys_of(devices), strict=True):
            names = [f"{key}/{port.port}" for port in device.ports]
            memories = [self._memory(name) for name in names]
            for port, memory in zip(device.ports, memories, strict=True):
                _update(memory, device, port, boot, now)
            present.update(names, (f"{key}/",))
            yield device, self._of_device(device, key, boot), list(zip(device.ports, memories, strict=True))
        self._remember_last(present)
        self._prune(present, boot.id)

    def _of_device(self, device: DeviceReading, key: str, boot: Boot) -> PortMemory | None:
        """Return the memory of the device's own counters, whose key has an empty port; None without such counters."""
        if not device.counts:
            return None
        memory = self._memory(f"{key}/")
        memory.renew(boot.id, device.inode, 0)
        return memory

    def _memory(self, name: str) -> PortMemory:
        return self._ports.get(name) or self._ports.setdefault(name, PortMemory())

    def _present_boot(self) -> Boot:
        """Read the boot id; the uptime only while the boot is under way."""
        boot_id = small_text(self._boot_id)
        if boot_id != self._boot.id or self._boot.under_way:
            self._boot = Boot(boot_id, _seconds(small_text(self._uptime)) < BOOT_SECONDS)
        return self._boot

    def _keys_of(self, devices: Sequence[DeviceReading]) -> list[str]:
        identities = [(device.node_guid, device.pci.address, device.name) for device in devices]
        if identities != self._devices:
            self._devices, self._keys = identities, _keys(identities)
        return self._keys

    def _remember_last(self, present: set[str]) -> None:
        """Keep the memories in the order in which their ports were last present, whenever that changes."""
        gone = self._present - present
        for key in [key for key in self._ports if key in gone] if gone else ():
            self._ports[key] = self._ports.pop(key)
        self._present = present

    def _prune(self, present: set[str], boot: str) -> None:
        """Forget absent ports beyond MAX_ABSENT: first those that nobody misses, of an earlier boot, absent longest."""
        if len(self._ports) <= MAX_ABSENT:
            return
        absent = [(bool(port.device), port.boot == boot, place, key)
                  for place, (key, port) in enumerate(self._ports.items()) if key not in present]  # fmt: skip
        for _, _, _, key in sorted(absent)[: max(0, len(absent) - MAX_ABSENT)]:
            del self._ports[key]


def _update(memory: PortMemory, device: DeviceReading, port: PortReading, boot: Boot, now: float) -> None:
    if device.link_is_constant:
        memory.renew(boot.id, device.inode, port.ifindex)
        memory.ever_active = memory.ever_active or port.active is True
        _remember_device(memory, device, port)
        return
    observation = PortObservation(
        boot.id, device.inode, port.ifindex, port.active, port.admin_down, port.down_sources,
        boot.under_way, port.down_reason, _nobodys(device),
    )  # fmt: skip
    memory.advance(observation, now)
    memory.update_settling(observation, now)
    _remember_device(memory, device, port)
    memory.rate_max = max(memory.rate_max, port.rate or 0)


def _nobodys(device: DeviceReading) -> str:
    """Return why nobody has to miss this device's link; empty for most devices."""
    pci = device.pci
    if device.of_fabric_manager:
        return FABRIC_MANAGER
    return VIRTUAL if pci.virtual else USB if pci.by_usb else NO_HARDWARE if pci.soft else ""


def _remember_device(memory: PortMemory, device: DeviceReading, port: PortReading) -> None:
    """Remember what is missed if it goes.

    An interface can leave for another namespace at any time, a device without hardware (soft-RoCE) with a command: only
    RDMA devices on the bus are missed.
    """
    missed = memory.ever_active and bool(port.port and device.pci.address) and not _nobodys(device)
    memory.device, memory.pci_bus_id, memory.driver = (
        (device.name, device.pci.address, device.pci.driver) if missed else ("", "", "")
    )


def _seconds(uptime: str) -> float:
    """Parse ``350735.47 234388.90`` into seconds since the boot; infinite where it can't be parsed."""
    try:
        return float(uptime.partition(" ")[0])
    except ValueError:
        return float("inf")


def _keys(devices: Sequence[tuple[str, str, str]]) -> list[str]:
    """Return a key for each device that outlives its name: GUID, else PCI address, unless shared; else the name."""
    guids = _unshared(guid for guid, _, _ in devices)
    addresses = _unshared(address for _, address, _ in devices)
    return [
        f"guid:{guid}" if guid in guids else f"pci:{address}" if address in addresses else f"name:{name}"
        for guid, address, name in devices
    ]


def _unshared(names: Iterable[str]) -> set[str]:
    return {name for name, times in Counter(names).items() if name and times == 1}
