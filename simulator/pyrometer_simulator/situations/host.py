"""A simulated node under the real node exporter, in this process and on a virtual clock."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from pyrometer_exporters.framework.collector import Collector, Context
from pyrometer_kit.http_message import Request
from pyrometer_simulator.host_files import HostFiles
from pyrometer_simulator.kmsg import KernelLog
from pyrometer_simulator.nccl.ras_server import RasJob
from pyrometer_simulator.nvml import FakeLibrary, SimulatedGpus
from pyrometer_simulator.nvml.installation import Installation
from pyrometer_simulator.overrides import override
from pyrometer_simulator.situations.checks import checks_on
from pyrometer_simulator.situations.clock import HostClock, VirtualTime
from pyrometer_simulator.situations.exported_node import ExportedNode, Hardware, listed_at_once
from pyrometer_simulator.sysfs import SysfsTree
from pyrometer_simulator.sysfs_nic import write_value

ALL_NVLINKS = list(range(18))
DRIVER_NOT_LOADED = 9  # nvmlReturn_t


NICS = Hardware()
"""A node's network alone: the cheapest to play."""
GPUS = Hardware(hcas=0, gpus=4, ethernet=0, collectors=("gpu", "kernel", "maintenance"))
"""As many GPUs as have a median to be compared with."""
ONE_GPU = replace(GPUS, gpus=1)
HOST = replace(GPUS, gpus=0, collectors=("kernel", "maintenance"))
"""A node without GPUs and HCAs: what its kernel says alone."""
TRAINING = Hardware(hcas=0, ethernet=0, collectors=("train", "kernel", "maintenance"))
"""A node of which only its ranks are looked at."""
WHOLE_NODE = Hardware(gpus=8, collectors=("gpu", "nic", "kernel", "maintenance"))


@dataclass
class Disk:
    """Hold the size of a local file system and the share of it that is free."""

    mountpoint: str
    gibibytes: float = 900.0
    free: float = 0.6
    fstype: str = "ext4"
    read_only: bool = False


class Host(ExportedNode):
    """One node: its hardware, its kernel log and, while it is up, its exporter.

    Attributes:
        tree: sysfs and procfs.
        gpus: the GPUs; None where the node has none.
        log: the kernel's log.
        driver: NVIDIA's driver on its disk and in its kernel, where it has GPUs.
        disks: its local file systems, as Prometheus' own node exporter sees them.
        bonds: how many interfaces of each bond work, and how many it has.
    """

    def __init__(self, name: str, folder: Path, hardware: Hardware, time: VirtualTime) -> None:
        self._time = time
        self._folder = folder
        self.tree = SysfsTree(folder / "tree", hardware.hcas, hardware.gpus, hardware.ethernet)
        clock = self.clock = HostClock(time)
        self.log = KernelLog(folder / "kmsg", clock.monotonic)
        super().__init__(
            name, folder, hardware, clock, sysfs=self.tree.sysfs, procfs=self.tree.procfs, kmsg=self.log.path
        )
        if "checks" in hardware.collectors:
            self._files = HostFiles(self.tree.sysfs, self.tree.procfs)
            (folder / "checks.yaml").write_text(f"expect: {hardware.expect}\n", encoding="utf-8")
        self.gpus: SimulatedGpus | None = None
        if hardware.gpus:
            self.gpus = SimulatedGpus(
                folder / "gpus", hardware.gpus, driver=hardware.driver, monotonic=time.since_creation
            )
            self.driver = Installation(self.tree.procfs, folder / "lib", hardware.driver)
            for gpu in self.gpus:
                gpu.load()
        self.disks = [Disk("/"), Disk("/boot", gibibytes=1.0, free=0.04)]
        self.bonds: dict[str, tuple[int, int]] = {}
        self._before_scrape()

    def shut_down(self, *, crash: bool = False) -> None:
        """Take the node away; in a ``crash`` the exporter saves nothing."""
        self.stop_exporter(crash=crash)
        self.is_up = False

    def boot(self) -> None:
        """Bring the node back: a new boot id, counters at 0, every link up."""
        self.clock.boot()
        self.tree.reboot()
        self.log.truncate()
        self.log.sequence = 0
        shutil.rmtree(self.rings, ignore_errors=True)  # in shared memory
        if self.gpus is not None:
            self.gpus.reload_driver(self.driver.installed)
            self.driver.load()
        self.is_up = True
        self._before_scrape()

    def join_job(self, job: RasJob | None, address: str) -> None:
        """Let the node run a part of a job, under its own address; None ends it."""
        self.job = job
        net = self.tree.procfs / "net"
        net.mkdir(exist_ok=True)
        (net / "fib_trie").write_text(f"Local:\n        |-- {address}\n           /32 host LOCAL\n")

    def unload_nvidia(self) -> None:
        """Unload NVIDIA's driver: nothing can be asked of the GPUs."""
        self._gpus.fail_init(DRIVER_NOT_LOADED)
        self._gpus.reload_driver()

    def load_nvidia(self) -> None:
        """Load NVIDIA's driver as it is installed: counters restart, NVLinks are yet to train."""
        self._gpus.fail_init(0)
        self._gpus.reload_driver(self.driver.installed)
        self.driver.load()
        for gpu in self._gpus:
            gpu.set(nvlinks_down=ALL_NVLINKS)

    def train_nvlinks(self) -> None:
        """Let all NVLinks come up, as the fabric manager does minutes after the driver."""
        for gpu in self._gpus:
            gpu.set(nvlinks_down=None)

    @property
    def _gpus(self) -> SimulatedGpus:
        if self.gpus is None:
            msg = f"{self.name} has no GPUs"
            raise ValueError(msg)
        return self.gpus

    def put_in_maintenance(self, *, over: bool = False) -> None:
        """Write the file that takes the node out of service, or remove it."""
        file = self.state / "maintenance"
        if over:
            file.unlink()
            return
        file.write_text("new riser\n")
        os.utime(file, (self._time.now, self._time.now))

    def lose_state(self) -> None:
        """Delete what the exporter keeps between runs, as a new system disk does."""
        for path in self.state.iterdir():
            path.unlink()

    def look_at_rings(self) -> None:
        """Let the exporter look at the rings, as it does once a second."""
        if self._train is not None:
            with listed_at_once():
                self._train.stacks(Request("GET", "/stacks"))

    def batches(self) -> bytes | None:
        """Return what ``/batches`` answers now; None while the node is down."""
        if not self.is_up:
            return None
        if self._train is None:
            return b""
        with listed_at_once():
            reply = self._train.batches(Request("GET", "/batches", query={"consumer": "prometheus"}, peer="127.0.0.1"))
        if reply.delivered is not None:
            reply.delivered(True)  # noqa: FBT003  the signature is the server's
        return bytes(reply.body)

    def reload_openibd(self) -> None:
        """Reload the HCAs' driver: each device is created again, its counters restart."""
        for nic in self.tree.nics:
            self.tree.reload_driver(nic.name)

    @override
    def _build_checks(self) -> Callable[[Context], Collector]:
        return checks_on(self._folder / "checks.yaml", self._files.disks)

    @override
    def _new_library(self) -> FakeLibrary | None:
        return FakeLibrary(self._folder / "gpus", self._time.since_creation) if self.gpus is not None else None

    @override
    def _before_scrape(self) -> None:
        write_value(self.tree.procfs / "uptime", f"{self.clock.monotonic():.2f} 1000.00")
