"""Collect links and counters of RDMA devices and of physical interfaces from sysfs: the collector ``nic``."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator

from pyrometer_exporters.framework.collector import CollectorSpec, Context, FlagGroup
from pyrometer_exporters.framework.metrics import Down, Item, Sample, columns_of
from pyrometer_exporters.framework.outcome import Outcome
from pyrometer_exporters.framework.scheduling import SharedWorker, Worker
from pyrometer_exporters.node.nic.device import GONE, Device, DeviceSource, Reader
from pyrometer_exporters.node.nic.expected_links import MissingDevices, expected_by_peers
from pyrometer_exporters.node.nic.fabric_functions import RdmaFunction, fabric_functions
from pyrometer_exporters.node.nic.families import ALL, MISSING, UP
from pyrometer_exporters.node.nic.infiniband import RdmaDevice
from pyrometer_exporters.node.nic.inventory import DeviceLister, Inventory, name_filter
from pyrometer_exporters.node.nic.kernel import Kernel, SystemKernel
from pyrometer_exporters.node.nic.netdev import InterfaceDevice
from pyrometer_exporters.node.nic.pcie import Gpus
from pyrometer_exporters.node.nic.port_memory import PortMemories
from pyrometer_exporters.node.nic.readings import DeviceReading
from pyrometer_exporters.node.nic.samples import CounterSamples, device_rows, port_rows
from pyrometer_exporters.node.nic.state import PortStateFile
from pyrometer_exporters.node.nic.sysfs import Files, HungFiles, allow_descriptors, share_of_open_files, small_text
from pyrometer_kit.errors import UsageError
from pyrometer_kit.flags import regexp

# A node with 22 PMA files per port was read in 0.113 s in all (node_exporter issue 3265); reads blocked on the kernel's
# RTNL lock took more than 5 s (issue 1841), and waiting for those gains nothing.
DEVICE_SECONDS = 2.0
# The share of the remaining time for devices; the rest is for saving the state.
DEVICE_SHARE = 0.8
# The share of a device's time after which a hanging file is searched for; the rest is for its other files.
FIRST_SHARE = 0.5

# How long a device may hold up the others in the shared thread.
PATIENCE_SECONDS = 0.005


class NicCollector:
    """Lists the devices at every scrape and reads each, a slow one in a thread of its own."""

    def __init__(
        self,
        context: Context,
        files: Files | None = None,
        new_kernel: Callable[[], Kernel | None] | None = None,
        *,
        every_time: bool = False,
    ) -> None:
        """Create the collector.

        Args:
            context: flags, paths and clock.
            files: the system calls used on sysfs; the real ones by default.
            new_kernel: creates each device's access to the kernel; None where the kernel isn't asked.
            every_time: read every file at every scrape, without tiers.

        Raises:
            UsageError: both --collector.nic.device-include and -exclude are given.
        """
        include = getattr(context.flags, "collector.nic.device-include", None)
        exclude = getattr(context.flags, "collector.nic.device-exclude", None)
        if include is not None and exclude is not None:
            msg = "--collector.nic.device-include and --collector.nic.device-exclude exclude each other: give one"
            raise UsageError(msg)
        self._sysfs = os.fspath(context.sysfs)
        self._lister = DeviceLister(self._sysfs, name_filter(include, exclude), name_filter(None, exclude))
        self._clock = context.clock
        self._gpus = Gpus(self._sysfs)
        self.asks_the_kernel = new_kernel is not None

        def new_reader(hung: HungFiles) -> Reader:
            kernel = new_kernel() if new_kernel else None
            return Reader(files or Files(), hung, kernel, every_time=every_time, most_open=self._most_open)

        self._new_reader = new_reader
        self._state_file = PortStateFile(context.state)
        self._counters = CounterSamples()
        self._memories = PortMemories(self._state_file, context.procfs)
        self._missing_devices = MissingDevices(self._sysfs, name_filter(include, exclude))
        self._known: list[tuple[str, int]] = []
        self._limited: set[str] = set()
        self._inventory: Inventory | None = None
        self._sources: dict[str, DeviceSource] = {}
        self._devices: dict[str, Device] = {}
        self._removed: list[Device] = []
        self._worker = SharedWorker("nic-quick", PATIENCE_SECONDS)
        self._saver = Worker("nic-state")

    def collect(self, until: float) -> Iterable[Item]:
        """Read all devices; see :class:`~pyrometer_exporters.framework.collector.Collector`."""
        inventory = self._lister.list_devices(self._clock.monotonic())
        items: list[Item] = [*inventory.absent]
        readings: list[DeviceReading] = []
        for device, outcome in self._read(self._sources_of(inventory), until):
            if outcome.reason == GONE or (outcome.value is not None and outcome.value.representor):
                continue
            items.append(UP.sample(outcome.value is not None, device))
            if outcome.value is None:
                items.append(Down(device, outcome.reason or "", outcome.detail))
            else:
                readings.append(outcome.value)
        items.extend(self._samples(readings))
        items.extend(self._missing(readings))
        items.extend(self._save(until))
        return items

    def close(self) -> None:
        """Close all descriptors, except those of a device that hangs, and save the port memories."""
        self._removed.extend(self._devices.values())
        self._devices.clear()
        self._close_removed(wait=1.0)
        self._saver.start(lambda: self._state_file.finish(self._memories.ports)).outcome(time.monotonic() + 1.0)
        self._saver.close()
        self._worker.close()

    def _sources_of(self, inventory: Inventory) -> dict[str, DeviceSource]:
        if inventory is not self._inventory:
            infiniband, net = f"{self._sysfs}/class/infiniband", f"{self._sysfs}/class/net"
            sources = {name: _interface(f"{net}/{name}") for name in inventory.interfaces}
            # Last, so that an interface named like an RDMA device can't take its place.
            sources.update(
                {n: _rdma_device(f"{infiniband}/{n}", net, netdevs) for n, netdevs in inventory.rdma.items()}
            )
            self._inventory, self._sources = inventory, sources
        return self._sources

    def _read(self, sources: dict[str, DeviceSource], until: float) -> Iterator[tuple[str, Outcome[DeviceReading]]]:
        self._removed.extend(self._devices.pop(name) for name in self._devices.keys() - sources.keys())
        self._close_removed()
        now = self._clock.monotonic()
        start = time.monotonic()
        allowed = min(DEVICE_SECONDS, DEVICE_SHARE * (until - start))
        reads = [self._device(name).prepare(source, now) for name, source in sources.items()]
        self._worker.run([read.task for read in reads])
        # Start all retries before waiting for any of them.
        first = start + FIRST_SHARE * allowed
        tasks = [read.device.retry_if_hung(read, first) for read in reads]
        for name, task in zip(sources, tasks, strict=True):
            yield name, task.outcome(start + allowed)

    def _device(self, name: str) -> Device:
        if name not in self._devices:
            self._devices[name] = Device(name, self._new_reader)
        return self._devices[name]

    def _most_open(self) -> int:
        return share_of_open_files(len(self._devices))

    def _samples(self, readings: list[DeviceReading]) -> list[Item]:
        self._gpus.refresh(self._clock.monotonic())
        readings = self._without_fabric_managers(readings)
        expected = expected_by_peers(readings, self._gpus.nearest)
        items: list[Item] = []
        self._counters.begin()
        for device, memory_of_device, ports in self._memories.update(readings, self._clock.wall()):
            items.append(columns_of(device_rows(device)))
            if memory_of_device is not None:
                items.append(self._counters.of(device.name, "", 0, device.counts, memory_of_device.widening))
            gpu = "" if device.pci.by_usb else self._gpus.nearest(device.pci.path)
            for port, memory in ports:
                peers_up = (device.name, port.port) in expected
                items += (
                    self._counters.of(device.name, port.port, group, counts, memory.widening)
                    for group, counts in enumerate(port.groups)
                )
                items.append(columns_of(port_rows(device, port, memory, gpu=gpu, peers_up=peers_up)))
                for group, reason in port.failed:
                    items.append(Down("/".join(filter(None, (device.name, port.port, group))), reason))
        return items

    def _without_fabric_managers(self, readings: list[DeviceReading]) -> list[DeviceReading]:
        """Mark the devices of a fabric manager, which are found again whenever devices come or go."""
        key = [(device.name, device.inode) for device in readings]
        if key != self._known:
            rdma = [device for device in readings if device.ports and device.ports[0].port]
            self._known, self._limited = key, fabric_functions([self._function(device) for device in rdma])
        if not self._limited:
            return readings
        return [device._replace(of_fabric_manager=device.name in self._limited) for device in readings]

    def _function(self, device: DeviceReading) -> RdmaFunction:
        path = device.pci.path
        chip, vendor = small_text(f"{path}/device"), small_text(f"{path}/vendor")
        layer, by_gpu = device.ports[0].link_layer, bool(self._gpus.nearest(path))
        return RdmaFunction(device.name, device.pci.address, layer, chip, vendor, by_gpu)

    def _missing(self, readings: list[DeviceReading]) -> Iterator[Sample]:
        if self._memories.booting:  # devices come one after another
            return
        addresses = {device.pci.address for device in readings}
        unread = self._sources.keys() - {device.name for device in readings}
        memories, now = self._memories.ports.values(), self._clock.wall()
        for device in self._missing_devices.missing(memories, unread, addresses, now):
            yield MISSING.sample(1, *device)

    def _save(self, until: float) -> Iterator[Down]:
        text = self._state_file.changed(self._memories.ports)
        if text is not None:
            # In a thread: a disk that hangs must not cost the links' metrics.
            outcome = self._saver.start(lambda: self._state_file.save(text)).outcome(until)
            if outcome.reason is not None:
                yield Down("state", outcome.reason, outcome.detail)

    def _close_removed(self, wait: float = 0.0) -> None:
        """Close devices that were removed; one whose read still hangs is tried again at the next scrape."""
        until = time.monotonic() + wait
        self._removed = [device for device in self._removed if not device.close(until)]


def _rdma_device(path: str, net: str, candidates: tuple[str, ...]) -> DeviceSource:
    return DeviceSource(path, lambda access: RdmaDevice(access, path, net, candidates).read)


def _interface(path: str) -> DeviceSource:
    return DeviceSource(path, lambda access: InterfaceDevice(access, path).read)


def _add_flags(group: FlagGroup) -> None:
    for which, help_text in (("exclude", "don't open these"), ("include", "open only these")):
        group.add_argument(
            f"--collector.nic.device-{which}",
            dest=f"collector.nic.device-{which}",
            type=regexp,
            metavar="REGEXP",
            help=f"{help_text}: RDMA devices and interfaces whose whole name matches",
        )


def build(context: Context) -> NicCollector:
    """Build the collector over the real files. Raises ``UsageError`` for flags that exclude each other."""
    allow_descriptors()
    # ioctls and netlink describe this machine's interfaces, whatever tree is read.
    here = os.fspath(context.sysfs) == "/sys"
    return NicCollector(context, new_kernel=SystemKernel if here else None)


COLLECTOR = CollectorSpec(
    name="nic",
    help="InfiniBand, RoCE and Ethernet links and their counters, from sysfs.",
    families=ALL,
    build=build,
    add_flags=_add_flags,
)
