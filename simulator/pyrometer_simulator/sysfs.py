"""A GPU node's sysfs and procfs as plain files, changed while a real exporter reads them.

::

    tree = SysfsTree(folder, hcas=8, gpus=8, ethernet=1)      # tree.sysfs, tree.procfs
    tree.nic("mlx5_3").down()                                 # state, rate, link_downed, carrier: all consistent
    tree.nic("mlx5_3").up()
    tree.nic("mlx5_3").traffic(125_000_000)

Values are written in place, into the same inode and always the same number of bytes (padded with newlines, which every
reader of sysfs strips): an exporter that keeps its descriptors open sees the new value, and none sees an empty file.
A tree has a thousand small files; it is made fastest under ``/dev/shm``.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path

from pyrometer_simulator.sysfs_drivers import DriverFiles, write_counters, write_text
from pyrometer_simulator.sysfs_layout import (
    CPU_FUNCTION,
    ETHERNET_ADDRESSES,
    ETHERNET_FUNCTION,
    GPU_ADDRESSES,
    GPU_FUNCTION,
    HCA_ADDRESSES,
    HCA_FUNCTION,
)
from pyrometer_simulator.sysfs_nic import SimulatedInterface, SimulatedNic, write_value

__all__ = ["SimulatedInterface", "SimulatedNic", "SysfsTree"]


class SysfsTree:
    """The files of one node under ``root``: ``sys`` and ``proc``."""

    def __init__(self, root: Path, hcas: int = 8, gpus: int = 8, ethernet: int = 1, gbps: int = 400) -> None:
        self.sysfs = root / "sys"
        self.procfs = root / "proc"
        for folder in ("class/infiniband", "class/net", "bus/pci/devices", "bus/pci/drivers"):
            (self.sysfs / folder).mkdir(parents=True)
        (self.sysfs / "class/net/bonding_masters").write_text("\n")
        self.gpu_addresses = GPU_ADDRESSES[:gpus]
        self._nics: dict[str, SimulatedNic] = {}
        self._interfaces: dict[str, SimulatedInterface] = {}
        self._function("0000:00:00.0", CPU_FUNCTION)
        for address in self.gpu_addresses:
            self._function(address, GPU_FUNCTION, _below(address))
        for index in range(hcas):
            self._add_hca(index, gbps)
        for index in range(ethernet):
            self._add_ethernet(index)
        (self.procfs / "sys/kernel/random").mkdir(parents=True)
        self._new_boot()

    @property
    def nics(self) -> tuple[SimulatedNic, ...]:
        """All HCAs, in order."""
        return tuple(self._nics.values())

    @property
    def interfaces(self) -> tuple[SimulatedInterface, ...]:
        """All interfaces, those of HCAs included."""
        return tuple(self._interfaces.values())

    def nic(self, name: str) -> SimulatedNic:
        """Return an HCA by name.

        Raises:
            KeyError: there is none of this name.
        """
        return self._nics[name]

    def interface(self, name: str) -> SimulatedInterface:
        """Return an interface by name, those of HCAs included.

        Raises:
            KeyError: there is none of this name.
        """
        return self._interfaces[name]

    def reboot(self) -> None:
        """Reboot: a new boot id, counters restart at 0, and each link comes up once."""
        self._new_boot()
        for nic in self.nics:
            nic.counters.zero()
            nic.hw_counters.zero()
            nic.up()
        for interface in self._interfaces.values():
            for name in ("carrier_changes", "carrier_down_count", "carrier_up_count"):
                interface.values.set(name, 1)

    def unplug(self, name: str) -> None:
        """Remove a device from the bus, and its interface.

        Raises:
            KeyError: there is none of this name.
        """
        (self.sysfs / "class/infiniband" / name).unlink()
        (self.sysfs / "class/net" / self._nics[name].interface.folder.name).unlink()

    def plug(self, name: str) -> None:
        """Bring a device back after :meth:`unplug`, or add a new one.

        Raises:
            KeyError: there is none of this name.
        """
        nic = self._nics[name]
        self._link("class/infiniband", name, nic.folder)
        self._link("class/net", nic.interface.folder.name, nic.interface.folder)

    def lose(self, name: str) -> None:
        """Let a device fall off the bus.

        Raises:
            KeyError: there is none of this name.
        """
        self.unplug(name)
        (self.sysfs / "bus/pci/devices" / self._nics[name].folder.parents[1].name).unlink()

    def find(self, name: str) -> None:
        """Find a device on the bus again after :meth:`lose`.

        Raises:
            KeyError: there is none of this name.
        """
        function = self._nics[name].folder.parents[1]
        self._link("bus/pci/devices", function.name, function)
        self.plug(name)

    def break_files(self, name: str) -> None:
        """Let every read of a device's ports give nothing, as when its firmware hangs.

        Raises:
            KeyError: there is none of this name.
        """
        folder = self._nics[name].folder / "ports/1"
        for path in [*folder.iterdir(), *(folder / "counters").iterdir(), *(folder / "hw_counters").iterdir()]:
            if path.is_file():
                write_value(path, "")

    def unload_driver(self) -> None:
        """Unload the HCAs' driver: their devices are gone, the cards stay on the bus."""
        for name in self._nics:
            self.unplug(name)
        drivers = self.sysfs / "bus/pci/drivers"
        (drivers / "mlx5_core").rename(drivers.parent / "mlx5_core.unloaded")

    def load_driver(self) -> None:
        """Load the HCAs' driver again after :meth:`unload_driver`."""
        drivers = self.sysfs / "bus/pci/drivers"
        (drivers.parent / "mlx5_core.unloaded").rename(drivers / "mlx5_core")
        for name in self._nics:
            self.plug(name)

    def make_virtual(self, name: str) -> None:
        """Make a device a virtual function of another.

        Raises:
            KeyError: there is none of this name.
        """
        (self._nics[name].folder.parents[1] / "physfn").symlink_to("../physical")

    def rename(self, old: str, new: str) -> None:
        """Rename a device, as a udev rule or ``rdma dev set name`` does.

        Raises:
            KeyError: there is none of this name.
        """
        nic = self._nics.pop(old)
        nic.folder.rename(nic.folder.with_name(new))
        nic.moved(nic.folder.with_name(new))
        self._nics[new] = nic
        (self.sysfs / "class/infiniband" / old).unlink()
        self._link("class/infiniband", new, nic.folder)

    def add_device(self, files: DriverFiles) -> Path:
        """Add a device of another driver, with counters 1, 2, 3, ...; return its folder."""
        address = f"0000:f0:{len(list((self.sysfs / 'class/infiniband').iterdir())):02x}.0"
        function = self._function(address, {**HCA_FUNCTION, "driver": files.pci_driver})
        device = function / "infiniband" / files.name
        for name, text in files.texts.items():
            write_text(device / name, text)
        write_counters(device / "hw_counters", files.hw_counters)
        for number, port in enumerate(files.ports, 1):
            folder = device / "ports" / str(number)
            for name in ("state", "phys_state", "rate", "link_layer"):
                write_text(folder / name, getattr(port, name))
            for name in ("counters", "counters_ext", "hw_counters"):
                write_counters(folder / name, getattr(port, name))
        (device / "device").symlink_to("../..")
        self._link("class/infiniband", files.name, device)
        return device

    def reload_driver(self, name: str) -> None:
        """Recreate the device's folder and interface: its counters restart, its link comes up once.

        Raises:
            KeyError: there is none of this name.
        """
        nic = self._nics[name]
        old = nic.folder.with_name(f"{name}.old")
        nic.folder.rename(old)
        shutil.copytree(old, nic.folder, symlinks=True)
        shutil.rmtree(old)
        nic.counters.zero()
        nic.hw_counters.zero()
        nic.interface.values.add("ifindex", 100)
        nic.interface.values.set("carrier_down_count", 1)

    def _add_hca(self, index: int, gbps: int) -> None:
        name = f"mlx5_{index}"
        gpu = next(iter(self.gpu_addresses[index : index + 1]), None)
        folder = self._function(HCA_ADDRESSES[index], HCA_FUNCTION, _below(gpu or HCA_ADDRESSES[index]))
        nic = self._nics[name] = SimulatedNic(folder, name, index, gbps)
        self._interfaces[f"ib{index}"] = nic.interface
        self.plug(name)

    def _add_ethernet(self, index: int) -> None:
        name = f"eth{index}"
        folder = self._function(ETHERNET_ADDRESSES[index], ETHERNET_FUNCTION)
        interface = self._interfaces[name] = SimulatedInterface(folder, name, 2 + index, 100, kind=1)
        self._link("class/net", name, interface.folder)

    def _function(self, address: str, attributes: Mapping[str, str], root: str | None = None) -> Path:
        """Add a PCI function with its driver, below a root port; return its folder."""
        folder = self.sysfs / "devices" / (root or _below(address)) / address
        folder.mkdir(parents=True)
        for name, value in attributes.items():
            if name != "driver":
                (folder / name).write_text(f"{value}\n")
        self._link("bus/pci/devices", address, folder)
        if driver := attributes.get("driver"):
            home = self.sysfs / "bus/pci/drivers" / driver
            home.mkdir(exist_ok=True)
            (folder / "driver").symlink_to(os.path.relpath(home, folder))
        return folder

    def _link(self, folder: str, name: str, target: Path) -> None:
        # Relative, like the kernel's own, so that the tree can be mounted elsewhere.
        (self.sysfs / folder / name).symlink_to(os.path.relpath(target, self.sysfs / folder))

    def _new_boot(self) -> None:
        (self.procfs / "sys/kernel/random/boot_id").write_text(f"{uuid.uuid4()}\n")


def _below(address: str) -> str:
    """Return the root bus and root port above a function, ``pci0000:18/0000:18:1f.0``."""
    return f"pci{address[:7]}/{address[:-4]}1f.0"
