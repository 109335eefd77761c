"""The GPUs on a simulated PCI bus, and which driver holds each: sysfs's side of what the driver does.

bus = PciBus(Path("sys"))
bus.bind(gpus[1].pci_bus_id, "vfio-pci")              # to a virtual machine; tell the driver too: gpus[1].leave()
bus.unplug(gpus[1].pci_bus_id)                        # echo 1 > .../remove
"""

from __future__ import annotations

import shutil
from pathlib import Path


class PciBus:
    """``<sysfs>/bus/pci/devices``; addresses are as NVML spells them."""

    def __init__(self, sysfs: Path) -> None:
        self._devices = sysfs / "bus" / "pci" / "devices"

    def plug(self, pci_bus_id: str, driver: str = "nvidia") -> None:
        """A GPU is found, and taken by a driver."""
        folder = self._folder(pci_bus_id)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "vendor").write_text("0x10de\n")
        (folder / "class").write_text("0x030200\n")
        self.bind(pci_bus_id, driver)

    def unplug(self, pci_bus_id: str) -> None:
        """A GPU is no longer on the bus."""
        shutil.rmtree(self._folder(pci_bus_id))

    def bind(self, pci_bus_id: str, driver: str) -> None:
        """A driver takes a GPU, another one or the same again: the kernel makes the link anew."""
        link = self._folder(pci_bus_id) / "driver"
        new = link.with_name("driver.new")  # beside the old one, so that it can't get its inode number
        new.symlink_to(f"../../../bus/pci/drivers/{driver}")
        new.replace(link)

    def unbind(self, pci_bus_id: str) -> None:
        """A GPU has no driver."""
        (self._folder(pci_bus_id) / "driver").unlink()

    def _folder(self, pci_bus_id: str) -> Path:
        return self._devices / pci_bus_id[4:].lower()
