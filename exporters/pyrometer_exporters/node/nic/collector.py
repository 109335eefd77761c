"""The collector ``nic``: links and counters of RDMA devices and of physical interfaces, from sysfs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from pyrometer_exporters.framework.collector import CollectorSpec, Context, FlagGroup
from pyrometer_exporters.framework.metrics import Down, Sample
from pyrometer_exporters.framework.outcome import Outcome
from pyrometer_exporters.framework.scheduling import SharedWorker, Worker
from pyrometer_exporters.node.nic.device import GONE, Device, Read, Reader
from pyrometer_exporters.node.nic.expected_links import expected_by_peers
from pyrometer_exporters.node.nic.families import ALL, UP
from pyrometer_exporters.node.nic.infiniband import RdmaDevice
from pyrometer_exporters.node.nic.inventory import DeviceLister, Inventory, name_filter
from pyrometer_exporters.node.nic.kernel import Kernel, SystemKernel
from pyrometer_exporters.node.nic.netdev import InterfaceDevice
from pyrometer_exporters.node.nic.pcie import Gpus
from pyrometer_exporters.node.nic.port_memory import PortMemories
from pyrometer_exporters.node.nic.readings import DeviceReading
from pyrometer_exporters.node.nic.samples import device_samples, port_samples
from pyrometer_exporters.node.nic.state import PortStateFile
from pyrometer_exporters.node.nic.sysfs import Files, HungFiles, SystemFiles, allow_descriptors
from pyrometer_kit.errors import UsageError
from pyrometer_kit.flags import regexp

# A node with 22 PMA files per port was read in 0.113 s all in all (node_exporter issue 3265); reads blocked on the
# kernel's RTNL lock took more than 5 s (issue 1841), and nothing is gained by waiting for those.
DEVICE_SECONDS = 2.0
# Of the time there is, so that some is left to save the state; the file and its folder took 1-10 ms.
DEVICE_SHARE = 0.8
# Of a device's time, until it is looked whether one of its files hangs; the rest is for the others.
FIRST_SHARE = 0.5

# How long the other devices wait for one that isn't done.
PATIENCE_SECONDS = 0.005
# In so many ways devices part by when they are read again for the first time: at one scrape every 15 s, what is read
# every minute comes in turn.
WAYS = 4


class NicCollector:
    """Lists the devices anew on every scrape and reads each; one that takes long, in a worker of its own."""

    def __init__(
        self,
        context: Context,
        files: Files | None = None,
        new_kernel: Callable[[], Kernel | None] | None = None,
        *,
        every_time: bool = False,
    ) -> None:
        """``new_kernel`` for each device, None: not asked; ``every_time``: read all at every look, without tiers."""
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

        def new_reader(early: float, hung: HungFiles) -> Reader:
            kernel = new_kernel() if new_kernel else None
            return Reader(files or SystemFiles(), hung, kernel, early, every_time=every_time)

        self._new_reader = new_reader
        self._store = PortStateFile(context.state)
        self._memories = PortMemories(self._store, context.procfs)
        self._stock: Inventory | None = None
        self._reads: dict[str, Read] = {}
        self._devices: dict[str, Device] = {}
        self._leaving: list[Device] = []
        self._worker = SharedWorker("nic-quick", PATIENCE_SECONDS)
        self._saver: Worker = Worker("nic-state")

    def collect(self, until: float) -> Iterable[Sample | Down]:
        """All devices, side by side; see :class:`~pyrometer_exporters.framework.collector.Collector`."""
        stock = self._lister.list_devices(self._clock.monotonic())
        found: list[Sample | Down] = [*stock.absent]
        readings: list[DeviceReading] = []
        for device, outcome in self._read(self._jobs(stock), until):
            if outcome.reason == GONE:
                continue
            found.append(UP.sample(outcome.value is not None, device))
            if outcome.value is None:
                found.append(Down(device, outcome.reason or "", outcome.detail))
            else:
                readings.append(outcome.value)
        found.extend(self._samples(readings))
        found.extend(self._save(until))
        return found

    def close(self) -> None:
        """Close all descriptors, save for those of a device that hangs; keep what is remembered."""
        self._leaving.extend(self._devices.values())
        self._devices.clear()
        self._let_go(wait=1.0)
        self._saver.start(lambda: self._store.finish(self._memories.ports)).outcome(time.monotonic() + 1.0)
        self._saver.close()
        self._worker.close()

    def _jobs(self, stock: Inventory) -> dict[str, Read]:
        if stock is not self._stock:
            infiniband, net = f"{self._sysfs}/class/infiniband", f"{self._sysfs}/class/net"
            jobs: dict[str, Read] = {name: _interface_job(f"{net}/{name}") for name in stock.interfaces}
            # Last, so that an interface named like an RDMA device can't take its place.
            jobs.update({n: _rdma_job(f"{infiniband}/{n}", net, behind) for n, behind in stock.rdma.items()})
            self._stock, self._reads = stock, jobs
        return self._reads

    def _read(self, jobs: dict[str, Read], until: float) -> Iterator[tuple[str, Outcome[DeviceReading]]]:
        self._leaving.extend(self._devices.pop(name) for name in self._devices.keys() - jobs.keys())
        self._let_go()
        now = self._clock.monotonic()
        start = time.monotonic()
        allowed = min(DEVICE_SECONDS, DEVICE_SHARE * (until - start))
        looks = [self._device(name).look(read, now) for name, read in jobs.items()]
        self._worker.run([look.task for look in looks])
        # Those that hang are begun anew, all of them, before any is waited for again.
        first = start + FIRST_SHARE * allowed
        again = [look.device.waited(look, first) for look in looks]
        for name, pending in zip(jobs, again, strict=True):
            yield name, pending.outcome(start + allowed)

    def _device(self, name: str) -> Device:
        if name not in self._devices:
            early = len(self._devices) % WAYS / WAYS
            self._devices[name] = Device(name, partial(self._new_reader, early))
        return self._devices[name]

    def _samples(self, readings: list[DeviceReading]) -> Iterator[Sample | Down]:
        expected = expected_by_peers(readings)
        self._gpus.refresh(self._clock.monotonic())
        for device, own, ports in self._memories.update(readings, self._clock.wall()):
            yield from device_samples(device, own)
            gpu = self._gpus.nearest(device.pci.path)
            for port, memory in ports:
                yield from port_samples(device, port, memory, gpu=gpu, peers_up=(device.name, port.port) in expected)
                for group, reason in port.failed:
                    yield Down("/".join(filter(None, (device.name, port.port, group))), reason)

    def _save(self, until: float) -> Iterator[Down]:
        text = self._store.changed(self._memories.ports)
        if text is not None:
            # In a worker: a disk that hangs must not take the links' metrics along.
            outcome = self._saver.start(lambda: self._store.save(text)).outcome(until)
            if outcome.reason is not None:
                yield Down("state", outcome.reason, outcome.detail)

    def _let_go(self, wait: float = 0.0) -> None:
        """Close devices that are no longer there; one whose read still hangs is tried again the next time."""
        until = time.monotonic() + wait
        self._leaving = [device for device in self._leaving if not device.close(until)]


def _rdma_job(path: str, net: str, candidates: tuple[str, ...]) -> Read:
    return Read(path, lambda access: RdmaDevice(access, path, net, candidates).read)


def _interface_job(path: str) -> Read:
    return Read(path, lambda access: InterfaceDevice(access, path).read)


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
    """The collector over the real files; ``UsageError`` for flags that exclude each other."""
    allow_descriptors()
    # Both speak of this machine's interfaces, whatever tree is read.
    here = os.fspath(context.sysfs) == "/sys"
    return NicCollector(context, new_kernel=SystemKernel if here else None)


COLLECTOR = CollectorSpec(
    name="nic",
    help="InfiniBand, RoCE and Ethernet links and their counters, from sysfs.",
    families=ALL,
    build=build,
    add_flags=_add_flags,
)
