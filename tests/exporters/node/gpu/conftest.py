"""A node with simulated GPUs under the real pynvml, and the GPU collector over it."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from pyrometer_exporters.framework.collector import Context
from pyrometer_exporters.framework.gpu_loads import GpuLoads
from pyrometer_exporters.framework.metrics import Down, Sample, samples_in
from pyrometer_exporters.framework.scheduling import Member, Task
from pyrometer_exporters.node.gpu import adaptive_timeout
from pyrometer_exporters.node.gpu.collector import GpuCollector, add_flags, build
from pyrometer_simulator.kmsg import KernelLog
from pyrometer_simulator.nvml import FakeLibrary, SimulatedGpus, installed
from pyrometer_simulator.nvml.pci_bus import PciBus

# A machine that pauses for 0.2 s is the subject of test_adaptive_timeout.py; elsewhere the wait is longer.
STEADY_SECONDS = 1.0


class ManualClock:
    """A manual clock: a test moves `now`."""

    def __init__(self) -> None:
        self.now = 1000.0

    def wall(self) -> float:
        return 1.7e9 + self.now

    def monotonic(self) -> float:
        return self.now


@dataclass
class Scrape:
    """The result of one collection."""

    samples: list[Sample]
    downs: dict[str, str]

    def values(self, name: str, **labels: str) -> dict[tuple[str, ...], float]:
        found = {}
        for sample in self.samples:
            named = dict(zip(sample.family.labels, sample.labels, strict=True))
            if sample.family.name == name and labels.items() <= named.items():
                found[sample.labels] = sample.value
        return found

    def value(self, name: str, **labels: str) -> float | None:
        found = list(self.values(name, **labels).values())
        assert len(found) <= 1, f"{name} {labels} has {len(found)} series"
        return found[0] if found else None

    def names_of(self, gpu: str) -> set[str]:
        return {
            s.family.name for s in self.samples if dict(zip(s.family.labels, s.labels, strict=True)).get("gpu") == gpu
        }


@dataclass
class Node:
    """The simulated GPUs, the library and the collector of one node."""

    gpus: SimulatedGpus
    library: FakeLibrary
    collector: GpuCollector
    clock: ManualClock | None
    rebuild: Callable[[], GpuCollector]
    log: KernelLog
    loads: GpuLoads
    only_hangs_are_late: bool = True
    """True to give a task that the driver does not hold up as long as a busy machine needs for it."""

    def scrape(self, seconds: float = 4.0) -> Scrape:
        patience = patch.object(Task, "_ends", self._ends) if self.only_hangs_are_late else nullcontext()
        with patience:
            found = list(self.collector.collect(time.monotonic() + seconds))
        downs = {item.part: item.reason for item in found if isinstance(item, Down)}
        return Scrape(samples_in(found), downs)

    def scrape_every(self, seconds: float, times: int = 1) -> Scrape:
        """Scrape so often, each time so many seconds later on the node's clock; return the last one."""
        assert self.clock is not None, "make_node(still=True)"
        for _ in range(times):
            self.clock.now += seconds
            scrape = self.scrape()
        return scrape

    @property
    def _ends(self) -> Callable[[Task[Any], float], bool]:
        really_ends = Task._ends

        def ends(task: Task[Any], until: float) -> bool:
            while not really_ends(task, until):
                if task.member is None or self._is_held_up(task.member):
                    return False
                until = time.monotonic() + 0.01
            return True

        return ends

    def _is_held_up(self, member: Member) -> bool:
        """Return whether the simulated driver holds up a GPU's member; any GPU, where it is the driver's own member."""
        index = next((gpu.identity.index for gpu in self.collector._registry.gpus if gpu.member is member), None)
        records = [self.gpus._file.record(gpu.index) for gpu in self.gpus if index in {None, gpu.index}]
        held = any(record.stuck or record.delay_seconds for record in records)
        return held or (index is None and bool(self.gpus._file.header.init_hangs))

    def restarted(self) -> Node:
        """The node with an exporter that has just been started."""
        self.collector.close()
        return replace(self, collector=self.rebuild())


class Hands:
    """The actions of an administrator on a node's GPUs: on the bus and at the driver."""

    def __init__(self, node: Node, sysfs: Path) -> None:
        self._node = node
        self._bus = PciBus(sysfs)

    def give_away(self, index: int) -> None:
        self._node.gpus[index].leave()
        self._bus.bind(self._node.gpus[index].pci_bus_id, "vfio-pci")

    def take_back(self, index: int) -> None:
        self._node.gpus[index].arrive()
        self._bus.bind(self._node.gpus[index].pci_bus_id, "nvidia")

    def remove(self, index: int) -> None:
        self._node.gpus[index].leave()
        self._bus.unplug(self._node.gpus[index].pci_bus_id)

    def rescan(self, index: int) -> None:
        self._node.gpus[index].arrive()
        self._bus.plug(self._node.gpus[index].pci_bus_id)

    def bind_only_in_sysfs(self, index: int) -> None:
        self._bus.bind(self._node.gpus[index].pci_bus_id, "nvidia")


MakeNode = Callable[..., Node]


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    return tmp_path / "sys"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """The exporter's state folder."""
    folder = tmp_path / "state"
    folder.mkdir()
    return folder


@pytest.fixture
def hands_of(sysfs: Path) -> Callable[[Node], Hands]:
    return lambda node: Hands(node, sysfs)


@pytest.fixture
def make_node(tmp_path: Path, sysfs: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeNode]:
    """Make a node; ``flags`` are the collector's, ``still`` stops its clock, ``setup`` runs before the collector.

    With ``scraped`` its collector has read the GPUs once.
    """
    monkeypatch.setenv("NODE_NAME", "gpu-042")
    with ExitStack() as stack:

        def make(
            *flags: str,
            count: int = 3,
            driver: str = "590.48.01",
            still: bool = False,
            setup: Callable[[SimulatedGpus], None] = lambda _gpus: None,
            state: Path | None = None,
            shortest: float = STEADY_SECONDS,
            scraped: bool = False,
        ) -> Node:
            monkeypatch.setattr(adaptive_timeout, "SHORTEST_SECONDS", shortest)
            clock = ManualClock() if still else None
            monotonic = clock.monotonic if clock else time.monotonic
            gpus = SimulatedGpus(tmp_path / "gpus", count=count, driver=driver, monotonic=monotonic)
            gpus.write_pci_tree(sysfs)
            setup(gpus)
            library = stack.enter_context(installed(gpus.path, monotonic))
            parser = argparse.ArgumentParser()
            add_flags(parser)
            log = KernelLog(tmp_path / "kmsg", monotonic)
            context = Context(
                parser.parse_args(flags), clock or RealClock(), sysfs, tmp_path / "proc", tmp_path, state, log.path
            )

            def rebuild() -> GpuCollector:
                collector = build(context)
                stack.callback(collector.close)
                return collector

            steady = shortest == STEADY_SECONDS
            node = Node(gpus, library, rebuild(), clock, rebuild, log, context.gpu_loads, steady)
            if scraped:
                node.scrape()
            return node

        yield make


class RealClock:
    def wall(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()
