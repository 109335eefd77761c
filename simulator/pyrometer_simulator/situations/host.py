"""A simulated node under the real node exporter, in this process and on a virtual clock."""

from __future__ import annotations

import errno
import math
import os
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import FileIO
from pathlib import Path
from typing import Any
from unittest import mock

from pyrometer_exporters.framework.collector import Collector, CollectorSpec, Context
from pyrometer_exporters.framework.exposition import Renderer
from pyrometer_exporters.framework.gather import Gatherer
from pyrometer_exporters.framework.service import BUILD_INFO, build, collectors_of, parser
from pyrometer_exporters.node.gpu import adaptive_timeout
from pyrometer_exporters.node.gpu import collector as gpu_collector
from pyrometer_exporters.node.gpu.sampler import Sampler, _Turn
from pyrometer_exporters.node.kernel import collector as kernel_collector
from pyrometer_exporters.node.kernel.follow import Follower, _why
from pyrometer_exporters.node.main import NODE_EXPORTER
from pyrometer_exporters.node.nccl import collector as nccl_collector
from pyrometer_exporters.node.nic.collector import COLLECTOR as NIC_COLLECTOR
from pyrometer_exporters.node.nic.collector import NicCollector
from pyrometer_exporters.node.train import ring_folder
from pyrometer_exporters.node.train.collector import TrainCollector
from pyrometer_kit.clock import Clock
from pyrometer_kit.http_message import Request
from pyrometer_simulator.host_files import HostFiles
from pyrometer_simulator.kmsg import KernelLog
from pyrometer_simulator.nccl.ras_server import RasJob
from pyrometer_simulator.nic_kernel import SimulatedKernel
from pyrometer_simulator.nvml import FakeLibrary, SimulatedGpus
from pyrometer_simulator.nvml.installation import Installation
from pyrometer_simulator.nvml.library import put_under_pynvml
from pyrometer_simulator.situations.checks import checks_on
from pyrometer_simulator.situations.clock import HostClock, VirtualTime
from pyrometer_simulator.situations.ras import AskedByScrapes, connection_to
from pyrometer_simulator.sysfs import SysfsTree
from pyrometer_simulator.sysfs_nic import write_value

# A real node's scrape may take as long; on a virtual clock nothing should.
SCRAPE_SECONDS = 5.0
STEADY_SECONDS = 2.0
ALL_NVLINKS = list(range(18))
DRIVER_NOT_LOADED = 9  # nvmlReturn_t


@dataclass(frozen=True)
class Hardware:
    """The hardware and software of a situation's node.

    Attributes:
        hcas: how many InfiniBand HCAs.
        gpus: how many GPUs.
        ethernet: how many Ethernet interfaces.
        driver: the version of NVIDIA's driver.
        collectors: the collectors that the node exporter runs.
        flags: further flags of the node exporter.
        sampler_hz: how often why clocks are low is sampled, for drivers that don't count it (0: never, which is quick).
        reads_kernel_log: whether the node exporter's user may read the kernel's log.
        node_exporter: whether Prometheus' own node exporter runs beside ours.
        ours: whether our node exporter runs.
        expect: what the collector ``checks`` is told to expect, in YAML.
    """

    hcas: int = 8
    gpus: int = 0
    ethernet: int = 1
    driver: str = "590.48.01"
    collectors: tuple[str, ...] = ("nic", "kernel", "maintenance")
    flags: tuple[str, ...] = ()
    sampler_hz: float = 0.0
    reads_kernel_log: bool = True
    node_exporter: bool = False
    ours: bool = True
    expect: str = ""


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


class SteppedFollower(Follower):
    """Reads the kernel's log when a scrape asks, instead of in a thread that waits in real time."""

    _file: FileIO | None = None

    def start(self) -> None:
        """Read the whole log."""
        self._file = self._path.open("rb", buffering=0)
        self._bytes = 0
        while not self._drain(self._file.fileno()):
            pass
        self.live = True

    def wait_settled(self, seconds: float) -> bool:  # noqa: ARG002  there is nothing to wait for
        """Read what has come since the last scrape."""
        while self._file is not None and not self._drain(self._file.fileno()):
            pass
        return True

    def close(self) -> None:
        """Close the log."""
        super().close()
        if self._file is not None:
            self._file.close()


class ForbiddenFollower(SteppedFollower):
    """Finds that its user may not read the kernel's log; root, who runs tests, could read any file."""

    def start(self) -> None:
        """Fail as an ordinary user does."""
        self.error = _why(PermissionError(errno.EACCES, "Permission denied", str(self._path)))


class SteppedTrainCollector(TrainCollector):
    """Looks at the rings when it is scraped or told to, instead of in a thread that waits in real time."""

    def _repeat(self, *_: object, **__: object) -> None:
        """End the thread at once."""


class SteppedSampler(Sampler):
    """Samples when :meth:`step` is called, instead of in threads that wait in real time."""

    def step(self) -> None:
        """Read all GPUs once."""
        for turn in self._crew:
            self._round(turn)

    def _hire(self) -> None:
        self._crew = (_Turn(),)


class ExportedNode:
    """The real node exporter over a node's files, in this process and on a virtual clock.

    Attributes:
        name: the node's name in Prometheus.
        hardware: which collectors run, and how.
        sysfs, procfs, kmsg: its files.
        state: the exporter's folder.
        rings: the folder of the ranks' rings.
        kernel: what it answers about interfaces.
        job: the job whose RAS socket the node has; None where there is none.
    """

    def __init__(
        self, name: str, folder: Path, hardware: Hardware, clock: Clock, *, sysfs: Path, procfs: Path, kmsg: Path
    ) -> None:
        self.name, self.hardware, self._clock = name, hardware, clock
        self.sysfs, self.procfs, self.kmsg = sysfs, procfs, kmsg
        self.rings, self.state = folder / "rings", folder / "state"
        self.kernel = SimulatedKernel()
        self.is_up = True
        self.job: RasJob | None = None
        self._library: FakeLibrary | None = None
        self._asked = AskedByScrapes()
        self._gatherer: Gatherer | None = None
        self._train: SteppedTrainCollector | None = None
        self._samplers: list[SteppedSampler] = []
        self._renderer = Renderer()

    def stop_exporter(self, *, crash: bool = False) -> None:
        """End the exporter; the next scrape starts another unless the node is down."""
        if self._gatherer is not None:
            kept = {path: path.read_bytes() for path in self.state.iterdir()} if crash else {}
            self._gatherer.close()
            for path, data in kept.items():
                path.write_bytes(data)
        self._gatherer = self._train = None

    def served(self, wanted: Collection[str]) -> bytes | None:
        """Return those metrics of ``/metrics`` that are wanted, as they are now; None while the node is down."""
        if not self.is_up:
            return None
        self._before_scrape()
        with self._stepped():
            gatherer = self._gatherer = self._gatherer or self._started()
            self._asked.now()
            gathered = gatherer.gather(SCRAPE_SECONDS)
        about = BUILD_INFO.sample(1, NODE_EXPORTER.prog, "simulated")
        samples = [sample for sample in (about, *gathered.samples) if sample.family.name in wanted]
        return self._renderer.text(samples)

    def sample_clocks(self) -> None:
        """Let the sampler read why clocks are low, once."""
        if self._samplers and self._gatherer is not None:
            put_under_pynvml(self._library)
            for sampler in self._samplers:
                sampler.step()

    def close(self) -> None:
        """End the exporter and release whatever hangs."""
        if self._library is not None:
            self._library.release()
        self.stop_exporter()

    def _started(self) -> Gatherer:
        if self._library is not None:
            self._library.release()
        self._library = self._new_library()
        put_under_pynvml(self._library)
        specs, _ = collectors_of(NODE_EXPORTER)
        wanted = [self._simulated(spec) for spec in specs if spec.name in self.hardware.collectors]
        flags = parser(NODE_EXPORTER, wanted).parse_args(list(self.hardware.flags))
        context = Context(flags, self._clock, self.sysfs, self.procfs, self.rings, self.state, self.kmsg)
        collectors: list[tuple[CollectorSpec, object]] = [(spec, build(spec, context)) for spec in wanted]
        self._train = next((each for _, each in collectors if isinstance(each, SteppedTrainCollector)), None)
        return Gatherer(collectors, self._clock)  # type: ignore[arg-type]

    def _simulated(self, spec: CollectorSpec) -> CollectorSpec:
        """Return a collector over what is simulated: ports over this node's kernel, rings without a thread."""
        if spec.name == "train":
            return replace(spec, build=SteppedTrainCollector)
        if spec.name == "checks":
            return replace(spec, build=self._build_checks())
        if spec.name != NIC_COLLECTOR.name:
            return spec
        return replace(spec, build=lambda context: NicCollector(context, new_kernel=lambda: self.kernel))

    @contextmanager
    def _stepped(self) -> Iterator[None]:
        """Put this node's driver under pynvml, and what waits in real time on the virtual clock."""
        put_under_pynvml(self._library)
        with (
            _listed_at_once(),
            mock.patch.object(
                kernel_collector, "Follower", SteppedFollower if self.hardware.reads_kernel_log else ForbiddenFollower
            ),
            # A busy machine is no subject here: a GPU is late only if the situation says so.
            mock.patch.object(adaptive_timeout, "SHORTEST_SECONDS", STEADY_SECONDS),
            mock.patch.object(gpu_collector, "SHORTEST_SECONDS", STEADY_SECONDS),
            mock.patch.object(gpu_collector, "Sampler", self._new_sampler),
            mock.patch.object(nccl_collector, "Background", self._asked.begin),
            mock.patch.object(nccl_collector, "Conversation", connection_to(lambda: self.job)),
        ):
            yield

    def _new_sampler(self, *settings: Any) -> SteppedSampler:  # noqa: ANN401  whatever a Sampler is made from
        self._samplers = [SteppedSampler(*settings)]
        return self._samplers[0]

    def _build_checks(self) -> Callable[[Context], Collector]:
        """Return how the collector ``checks`` is built."""
        raise NotImplementedError

    def _new_library(self) -> FakeLibrary | None:
        """Load the driver's library as a new process does; None where there is no driver."""
        return None

    def _before_scrape(self) -> None:
        """Write the files that change by themselves."""


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
        self.state.mkdir()
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
            with _listed_at_once():
                self._train.stacks(Request("GET", "/stacks"))

    def batches(self) -> bytes | None:
        """Return what ``/batches`` answers now; None while the node is down."""
        if not self.is_up:
            return None
        if self._train is None:
            return b""
        with _listed_at_once():
            reply = self._train.batches(Request("GET", "/batches", query={"consumer": "prometheus"}, peer="127.0.0.1"))
        if reply.delivered is not None:
            reply.delivered(True)  # noqa: FBT003  the signature is the server's
        return bytes(reply.body)

    def reload_openibd(self) -> None:
        """Reload the HCAs' driver: each device is created again, its counters restart."""
        for nic in self.tree.nics:
            self.tree.reload_driver(nic.name)

    def _build_checks(self) -> Callable[[Context], Collector]:
        return checks_on(self._folder / "checks.yaml", self._files.disks)

    def _new_library(self) -> FakeLibrary | None:
        return FakeLibrary(self._folder / "gpus", self._time.since_creation) if self.gpus is not None else None

    def _before_scrape(self) -> None:
        write_value(self.tree.procfs / "uptime", f"{self.clock.monotonic():.2f} 1000.00")


@contextmanager
def _listed_at_once() -> Iterator[None]:
    """Let folders of rings be listed however long it took last time: on a busy machine that is real time, not ours."""
    with mock.patch.object(ring_folder, "LONG_SECONDS", math.inf):
        yield
