"""The GPUs on a simulated PCI bus, and the driver that each is bound to, as sysfs shows them.

bus = PciBus(Path("sys"))
bus.bind(gpus[1].pci_bus_id, "vfio-pci")              # to a virtual machine; and from the driver: gpus[1].leave()
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
        """Add a GPU to the bus and bind it to a driver."""
        folder = self._folder(pci_bus_id)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "vendor").write_text("0x10de\n")
        (folder / "class").write_text("0x030200\n")
        self.bind(pci_bus_id, driver)

    def unplug(self, pci_bus_id: str) -> None:
        """Remove a GPU from the bus.

        Raises:
            FileNotFoundError: it is not on the bus.
        """
        shutil.rmtree(self._folder(pci_bus_id))

    def bind(self, pci_bus_id: str, driver: str) -> None:
        """Bind a GPU to a driver; binding it again replaces the link, as the kernel does."""
        link = self._folder(pci_bus_id) / "driver"
        new = link.with_name("driver.new")  # made beside the old one, so that it can't get the same inode number
        new.symlink_to(f"../../../bus/pci/drivers/{driver}")
        new.replace(link)

    def unbind(self, pci_bus_id: str) -> None:
        """Unbind a GPU from its driver.

        Raises:
            FileNotFoundError: it has none.
        """
        (self._folder(pci_bus_id) / "driver").unlink()

    def _folder(self, pci_bus_id: str) -> Path:
        return self._devices / pci_bus_id[4:].lower()
