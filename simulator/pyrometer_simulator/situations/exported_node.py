"""Run the real node exporter over the files of a node, in this process and on a virtual clock."""

from __future__ import annotations

import errno
import math
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
from pyrometer_simulator.nccl.ras_server import RasJob
from pyrometer_simulator.nic_kernel import SimulatedKernel
from pyrometer_simulator.nvml import FakeLibrary
from pyrometer_simulator.nvml.library import put_under_pynvml
from pyrometer_simulator.overrides import override
from pyrometer_simulator.situations.ras import AskedByScrapes, connection_to

# A real node's scrape may take as long; on a virtual clock nothing should.
SCRAPE_SECONDS = 5.0
STEADY_SECONDS = 2.0


@dataclass(frozen=True)
class Hardware:
    """Says which hardware and software a node has in a situation.

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


class SteppedFollower(Follower):
    """Reads the kernel's log when a scrape asks, instead of in a thread that waits in real time."""

    _file: FileIO | None = None

    @override
    def start(self) -> None:
        """Read the whole log."""
        self._file = self._path.open("rb", buffering=0)
        self._bytes = 0
        while not self._drain(self._file.fileno()):
            pass
        self.live = True

    @override
    def wait_settled(self, seconds: float) -> bool:  # noqa: ARG002  there is nothing to wait for
        """Read what has come since the last scrape."""
        while self._file is not None and not self._drain(self._file.fileno()):
            pass
        return True

    @override
    def close(self) -> None:
        """Close the log."""
        super().close()
        if self._file is not None:
            self._file.close()


class ForbiddenFollower(SteppedFollower):
    """Finds that its user may not read the kernel's log; root, who runs tests, could read any file."""

    @override
    def start(self) -> None:
        """Fail as an ordinary user does."""
        self.error = _why(PermissionError(errno.EACCES, "Permission denied", str(self._path)))


class SteppedTrainCollector(TrainCollector):
    """Looks at the rings when it is scraped or told to, instead of in a thread that waits in real time."""

    @override
    def _repeat(self, *_: object, **__: object) -> None:
        """End the thread at once."""


class SteppedSampler(Sampler):
    """Samples when :meth:`step` is called, instead of in threads that wait in real time."""

    def step(self) -> None:
        """Read all GPUs once."""
        for turn in self._crew:
            self._round(turn)

    @override
    def _hire(self) -> None:
        self._crew = (_Turn(),)


class ExportedNode:
    """Runs the real node exporter over a node's files, in this process and on a virtual clock.

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
        self.state.mkdir()
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
            listed_at_once(),
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
        """Write the files that change on their own."""


@contextmanager
def listed_at_once() -> Iterator[None]:
    """Let folders of rings be listed however long it took last time: on a busy machine that is real time, not ours."""
    with mock.patch.object(ring_folder, "LONG_SECONDS", math.inf):
        yield
