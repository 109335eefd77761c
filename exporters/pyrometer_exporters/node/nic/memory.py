"""The memories of all ports: found again by hardware rather than by name, kept across restarts of the exporter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pyrometer_exporters.node.nic.link_down import Look, PortMemory
from pyrometer_exporters.node.nic.readings import DeviceReading, PortReading
from pyrometer_exporters.node.nic.state import Store

# Virtual functions may come with a new GUID for every job; what is absent since an earlier boot goes first.
MAX_PORTS = 512


class Memories:
    """Looks up and advances the memory of each port that was read."""

    def __init__(self, store: Store, boot_id: Path) -> None:
        self._ports = store.load()
        self._boot_id = boot_id

    @property
    def ports(self) -> dict[str, PortMemory]:
        """All that is remembered, by key."""
        return self._ports

    def take_in(
        self, devices: Sequence[DeviceReading], now: float
    ) -> Iterator[tuple[DeviceReading, PortReading, PortMemory]]:
        """Advance the memories of all ports of ``devices`` at the wall time ``now``."""
        boot = self._boot()
        known = set()
        for device, key in zip(devices, _keys(devices), strict=True):
            for port in device.ports:
                name = f"{key}/{port.port}"
                known.add(name)
                memory = self._ports.setdefault(name, PortMemory())
                _advance(memory, device, port, boot, now)
                yield device, port, memory
        self._prune(known, boot)

    def _boot(self) -> str:
        """The kernel's boot id: ``4f1d5c2e-...``; empty where procfs is missing, and then a boot can't be told."""
        try:
            return self._boot_id.read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            return ""

    def _prune(self, known: set[str], boot: str) -> None:
        if len(self._ports) > MAX_PORTS:
            for key in [key for key, port in self._ports.items() if key not in known and port.boot != boot]:
                del self._ports[key]


def _advance(memory: PortMemory, device: DeviceReading, port: PortReading, boot: str, now: float) -> None:
    if device.link_is_constant:
        return
    look = Look(boot, device.inode, port.ifindex, port.active, port.admin_down, port.down_sources)
    memory.advance(look, now)
    memory.rate_max = max(memory.rate_max, port.rate or 0)


def _keys(devices: Sequence[DeviceReading]) -> list[str]:
    """A key for each device that outlives its name: GUID, else PCI address, else the name; shared ones don't count."""
    guids = _unshared(device.node_guid for device in devices)
    addresses = _unshared(device.pci_bus_id for device in devices)
    return [
        f"guid:{device.node_guid}" if device.node_guid in guids
        else f"pci:{device.pci_bus_id}" if device.pci_bus_id in addresses
        else f"name:{device.name}"
        for device in devices
    ]  # fmt: skip


def _unshared(names: Iterable[str]) -> set[str]:
    return {name for name, times in Counter(names).items() if name and times == 1}
