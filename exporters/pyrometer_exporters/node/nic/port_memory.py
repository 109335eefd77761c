"""The memories of all ports: found again by hardware rather than by name, kept across restarts of the exporter."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from pyrometer_exporters.node.nic.link_down import PortMemory, PortObservation
from pyrometer_exporters.node.nic.readings import DeviceReading, PortReading
from pyrometer_exporters.node.nic.state import PortStateFile

# Virtual functions may come with a new GUID for every job; what is absent since an earlier boot goes first.
MAX_PORTS = 512
# Links come and go while a node, its switches and its subnet manager settle after a boot.
BOOT_SECONDS = 900.0


class Boot(NamedTuple):
    """``id`` is the kernel's: ``4f1d5c2e-...``, empty where procfs is missing, and then a boot can't be told."""

    id: str
    under_way: bool


class PortMemories:
    """Looks up and advances the memory of each port that was read."""

    def __init__(self, store: PortStateFile, procfs: Path) -> None:
        self._ports = store.load()
        self._boot_id, self._uptime = f"{procfs}/sys/kernel/random/boot_id", f"{procfs}/uptime"
        self._boot = Boot("", under_way=True)
        self._devices: list[tuple[str, str, str]] = []
        self._keys: list[str] = []

    @property
    def ports(self) -> dict[str, PortMemory]:
        """All that is remembered, by key."""
        return self._ports

    def take_in(
        self, devices: Sequence[DeviceReading], now: float
    ) -> Iterator[tuple[DeviceReading, PortMemory | None, list[tuple[PortReading, PortMemory]]]]:
        """Advance all memories at the wall time ``now``: of each device (None where it needs none) and of its ports."""
        boot = self._present_boot()
        known: set[str] = set()
        for device, key in zip(devices, self._keys_of(devices), strict=True):
            names = [f"{key}/{port.port}" for port in device.ports]
            memories = [self._memory(name) for name in names]
            for port, memory in zip(device.ports, memories, strict=True):
                _advance(memory, device, port, boot, now)
            own = self._of_device(device, key, boot)
            known.update(names, (f"{key}/",))
            yield device, own, list(zip(device.ports, memories, strict=True))
        self._prune(known, boot.id)

    def _of_device(self, device: DeviceReading, key: str, boot: Boot) -> PortMemory | None:
        """For the counters of the device itself, whose key has an empty port."""
        if not device.counts:
            return None
        memory = self._memory(f"{key}/")
        memory.renew(boot.id, device.inode, 0)
        return memory

    def _memory(self, name: str) -> PortMemory:
        return self._ports.get(name) or self._ports.setdefault(name, PortMemory())

    def _present_boot(self) -> Boot:
        """A boot that is over stays so until there is another one."""
        found = _text(self._boot_id)
        if found != self._boot.id or self._boot.under_way:
            self._boot = Boot(found, _seconds(_text(self._uptime)) < BOOT_SECONDS)
        return self._boot

    def _keys_of(self, devices: Sequence[DeviceReading]) -> list[str]:
        found = [(device.node_guid, device.pci.address, device.name) for device in devices]
        if found != self._devices:
            self._devices, self._keys = found, _keys(found)
        return self._keys

    def _prune(self, known: set[str], boot: str) -> None:
        if len(self._ports) > MAX_PORTS:
            for key in [key for key, port in self._ports.items() if key not in known and port.boot != boot]:
                del self._ports[key]


def _advance(memory: PortMemory, device: DeviceReading, port: PortReading, boot: Boot, now: float) -> None:
    if device.link_is_constant:
        memory.renew(boot.id, device.inode, port.ifindex)
        return
    look = PortObservation(
        boot.id, device.inode, port.ifindex, port.active, port.admin_down, port.down_sources,
        boot.under_way, port.down_reason,
    )  # fmt: skip
    memory.advance(look, now)
    memory.rate_max = max(memory.rate_max, port.rate or 0)


def _text(path: str) -> str:
    # By system calls alone, at a tenth of what pathlib takes, as this is for every scrape.
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(descriptor, 64).decode("ascii").strip()
    except (OSError, ValueError):
        return ""
    finally:
        os.close(descriptor)


def _seconds(uptime: str) -> float:
    """Seconds since the boot from ``350735.47 234388.90``; infinite where that can't be told."""
    try:
        return float(uptime.partition(" ")[0])
    except ValueError:
        return float("inf")


def _keys(devices: Sequence[tuple[str, str, str]]) -> list[str]:
    """A key for each device that outlives its name: GUID, else PCI address, else the name; shared ones don't count."""
    guids = _unshared(guid for guid, _, _ in devices)
    addresses = _unshared(address for _, address, _ in devices)
    return [
        f"guid:{guid}" if guid in guids else f"pci:{address}" if address in addresses else f"name:{name}"
        for guid, address, name in devices
    ]


def _unshared(names: Iterable[str]) -> set[str]:
    return {name for name, times in Counter(names).items() if name and times == 1}
