"""A site on virtual time: nodes, what happens to them, and what Prometheus sees of them."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pyrometer_simulator.nvml.library import put_under_pynvml
from pyrometer_simulator.situations.clock import VirtualTime
from pyrometer_simulator.situations.exported_node import Hardware
from pyrometer_simulator.situations.host import Host
from pyrometer_simulator.situations.node_exporter import node_exporter_text
from pyrometer_simulator.situations.recording import BatchRecording, Recording
from pyrometer_simulator.situations.training import SimulatedRun

CLUSTER = "c1"
# When collectors have read before the first scrape that counts: they know every file, and every port has settled.
SCRAPES_BEFORE = (-180.0, -120.0, -60.0)

Series = tuple[str, str]


@dataclass
class Target:
    """A target of Prometheus: what it answers, and the series that came of it."""

    answer: Callable[[], bytes | None]
    recording: Recording
    copies: int = 0


class Site:
    """The nodes of a situation while it is played.

    Args:
        hardware: of each node.
        wanted: the names of the metrics that rules use; others are dropped.
        folder: where the nodes' files are made.
        nodes: how many nodes.
        copies: how many more nodes show what the node of this index shows.
        racks: the rack of the node of this index, and of its copies; the others have none.
    """

    def __init__(
        self,
        hardware: Hardware,
        wanted: Collection[str],
        folder: Path,
        nodes: int = 1,
        copies: Mapping[int, int] = MappingProxyType({}),
        *,
        racks: Mapping[int, str] = MappingProxyType({}),
    ) -> None:
        self._time = VirtualTime()
        self._hardware = hardware
        self._copies = copies
        self._racks = racks
        self._wanted = wanted
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._order = itertools.count()
        self._targets: list[Target] = []
        self._batches: list[tuple[Callable[[], bytes | None], BatchRecording]] = []
        self._unscraped_until = 0.0
        self.runs: list[SimulatedRun] = []
        self.folder = folder
        self.nodes = [self._new_node(index) for index in range(nodes)]

    @property
    def node(self) -> Host:
        """The first node."""
        return self.nodes[0]

    @property
    def run(self) -> SimulatedRun:
        """The run that began last."""
        return self.runs[-1]

    @property
    def grid(self) -> int | None:
        """The interval of the series' values in seconds; None for that of the scrapes: batches have their own times."""
        return 1 if self._batches else None

    def train(self, nodes: Sequence[Host] | None = None, **settings: Any) -> None:  # noqa: ANN401  those of the run
        """Begin a run on these nodes, or on all."""
        self.runs.append(SimulatedRun(nodes or self.nodes, self.after, **settings))

    @property
    def now(self) -> float:
        """Seconds since the first scrape."""
        return self._time.now

    def after(self, seconds: float, action: Callable[[], object]) -> None:
        """Let something happen so many seconds from now."""
        self.schedule(self.now + seconds, action)

    def every(self, seconds: float, action: Callable[[], object], times: int) -> None:
        """Let something happen now and ``times`` - 1 times more, so many seconds apart."""
        for number in range(times):
            self.after(seconds * number, action)

    def reboot(
        self, node: Host | None = None, *, away: float = 90.0, training: float = 0.0, crash: bool = False
    ) -> None:
        """Reboot a node: it is ``away`` for so many seconds, and its links come up ``training`` seconds after that."""
        node = node or self.node
        node.shut_down(crash=crash)
        self.after(away, lambda: self._boot(node, training))

    def reload_nvidia(self, *, away: float = 30.0, training: float = 90.0) -> None:
        """Reload NVIDIA's driver on the first node; NVLinks come up ``training`` seconds after it."""
        self.node.unload_nvidia()
        self.after(away, self.node.load_nvidia)
        self.after(away + training, self.node.train_nvlinks)

    def reload_openibd(
        self, node: Host | None = None, *, away: float = 20.0, training: float = 40.0, errors: int = 60
    ) -> None:
        """Reload the HCAs' driver on a node, as ``openibd restart`` does; links train, with symbol errors."""
        node = node or self.node
        node.tree.unload_driver()
        self.after(away, lambda: self._loaded(node, training, errors))

    def leave_unscraped(self, seconds: float) -> None:
        """Let nobody scrape anything from now on, for so many seconds: Prometheus is away."""
        self._unscraped_until = self.now + seconds

    def serve(self, job: str, answer: Callable[[], bytes | None], **labels: str) -> None:
        """Add a target of another job, such as kube-state-metrics.

        Args:
            job: its name in Prometheus.
            answer: returns its text; None while it is away.
            labels: of the target.
        """
        labels = {"cluster": CLUSTER, "job": job, "instance": f"{job}:9000", **labels}
        recording = Recording(labels, self._wanted)
        recording.scrapes = self._targets[0].recording.scrapes if self._targets else 0
        self._targets.append(Target(answer, recording))

    def schedule(self, seconds: float, action: Callable[[], object]) -> None:
        """Let something happen so many seconds after the first scrape."""
        heapq.heappush(self._events, (seconds, next(self._order), action))

    def scrape(self, interval: int, lasts: float) -> list[Series]:
        """Let ``lasts`` seconds pass with a scrape of all targets every ``interval``; return all series."""
        # A situation begins with its first step, which may be long before the first scrape.
        self._time.now = min([SCRAPES_BEFORE[0], *(seconds for seconds, *_ in self._events)])
        for seconds in SCRAPES_BEFORE:
            self._pass_until(seconds)
            for target in self._targets:
                target.answer()
        for number in range(int(lasts // interval) + 1):
            self._pass_until(float(number * interval))
            self._scrape_once()
        apart = interval // (self.grid or interval)
        series = [series for target in self._targets for series in _of(target, apart)]
        return series + [series for _, batches in self._batches for series in batches.series()]

    def _scrape_once(self) -> None:
        for target in list(self._targets):
            if self.now < self._unscraped_until:
                target.recording.leave_out()
            else:
                target.recording.take(target.answer())
        if self.now >= self._unscraped_until:
            for answer, batches in self._batches:
                batches.take(answer())

    def close(self) -> None:
        """End all runs and exporters."""
        for run in self.runs:
            run.kill_all()
        for node in self.nodes:
            node.close()
        put_under_pynvml(None)

    def _new_node(self, index: int) -> Host:
        name = f"gpu-{index + 1:03d}"
        folder = self.folder / name
        folder.mkdir()
        node = Host(name, folder, self._hardware, self._time)
        own = {"cluster": CLUSTER, "node": name}
        if index in self._racks:
            own["rack"] = self._racks[index]
        answers = [("node", f"{name}:9935", lambda: node.served(self._wanted))] if self._hardware.ours else []
        if self._hardware.node_exporter:
            answers.append(("host", f"{name}:9100", lambda: node_exporter_text(node)))
        if self._hardware.ours and "train" in self._hardware.collectors:
            labels = {**own, "job": "batches", "instance": f"{name}:9935"}
            self._batches.append((node.batches, BatchRecording(labels, self._wanted)))
        for job, instance, answer in answers:
            recording = Recording({**own, "job": job, "instance": instance}, self._wanted)
            self._targets.append(Target(answer, recording, self._copies.get(index, 0)))
        return node

    def _loaded(self, node: Host, training: float, errors: int) -> None:
        node.tree.load_driver()
        node.reload_openibd()
        self._train(node, training, errors)

    def _boot(self, node: Host, training: float) -> None:
        node.boot()
        if training:
            self._train(node, training, errors=60)

    def _train(self, node: Host, seconds: float, errors: int) -> None:
        for nic in node.tree.nics:
            nic.train()
            self.after(seconds, partial(nic.count, "symbol_error", errors))
            self.after(seconds, nic.up)

    def _pass_until(self, now: float) -> None:
        """Let time pass; what is to happen at the very moment of a scrape happens just after it: the longest delay."""
        while self._events and self._events[0][0] < now:
            seconds, _, action = heapq.heappop(self._events)
            self._sample_clocks(seconds)
            self._time.now = max(self.now, seconds)
            action()
        self._sample_clocks(now)
        self._time.now = now

    def _sample_clocks(self, until: float) -> None:
        if not self._hardware.sampler_hz:
            return
        period = 1 / self._hardware.sampler_hz
        while self.now + period < until:
            self._time.now += period
            for node in self.nodes:
                node.sample_clocks()


def _of(target: Target, apart: int) -> Iterator[Series]:
    recording = target.recording
    own = recording.labels.get("node", "")
    yield from recording.series(apart=apart)
    for number in range(1, target.copies + 1):
        name = f"{own}-{number:03d}"
        labels: Mapping[str, str] = recording.labels | {"node": name, "instance": f"{name}:9935"}
        # Ports and health alone: promtool's engine refuses a query of more than 10,000 samples.
        yield from (each for each in recording.series(labels, apart) if not each[0].startswith("pyrometer_kernel_"))
