"""Two Prometheis with the shipped configuration and a page's changes, on nodes that train; each can be killed."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from pyrometer_simulator.alerts_told import Notifications, start_alertmanager
from pyrometer_simulator.demo.observe import Prometheus
from pyrometer_simulator.demo.processes import Processes
from pyrometer_simulator.demo.programs import project_folder
from pyrometer_simulator.pair.pages import Hosts, merged
from pyrometer_simulator.stack import Stack
from pyrometer_simulator.training_nodes import STEPS, TrainingNodes

NAME = "simulated"
NODES = ("gpu-001", "gpu-002")
REPLICAS = ("a", "b")
PORT = 9090
# The newest batches are on their way: an interval, and what a busy machine adds.
ON_THEIR_WAY_SECONDS = 15.0


@dataclass(frozen=True)
class _Launch:
    command: Sequence[str]
    ready: str
    env: Mapping[str, str] = field(default_factory=dict)
    folder: Path | None = None


class Pair:
    """Everything, started in an empty folder; ``close`` ends it.

    Attributes:
        hosts: loopback addresses of ``prom-a``, ``prom-b``, ``alertmanager`` and the page's other hosts.
        processes: takes what the page adds.
        told: what Alertmanager told of.
        nodes: the nodes with their hardware, exporters and runs.
    """

    def __init__(self, folder: Path, stack: Stack, page: Mapping[str, str], names: Sequence[str]) -> None:
        """Start nodes, Alertmanager and both Prometheis.

        Args:
            folder: empty.
            stack: where the programs are.
            page: blocks of the page; ``prometheus.yaml`` is put into both configurations, ``second`` is run on b's.
            names: the page's further hosts.
        """
        self.folder = folder
        self._stack = stack
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._launches: dict[str, _Launch] = {}
        self.hosts = Hosts(*(f"prom-{name}" for name in REPLICAS), "alertmanager", *names)
        (folder / "logs").mkdir(parents=True)
        with contextlib.ExitStack() as starting:
            self.processes = starting.enter_context(Processes(folder / "logs"))
            self.told = starting.enter_context(contextlib.closing(Notifications()))
            port = start_alertmanager(folder / "alertmanager", stack, self.processes, self.told)
            self.nodes = TrainingNodes(folder / "nodes", self.processes, NODES, (), NAME)
            starting.callback(self.nodes.training.stop)
            for name in REPLICAS:
                self._configure(name, page, port)
                self._launches[name] = self._replica(name)
                self.start(name)
            self.nodes.training.start()
            self._ending = starting.pop_all()

    def close(self) -> None:
        """End everything."""
        for process in self._running.values():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
        self._ending.close()

    def data(self, name: str) -> Path:
        """Return where a replica's samples are."""
        return self.folder / f"prometheus-{name}/data"

    def prometheus(self, name: str) -> Prometheus:
        """Return a replica, to be asked."""
        return Prometheus(f"http://127.0.0.1:{self.hosts.port(f'prom-{name}', PORT)}")

    def _replica(self, name: str) -> _Launch:
        port = self.hosts.port(f"prom-{name}", PORT)
        command = [
            str(self._stack.prometheus), "--config.file=prometheus.yaml", "--storage.tsdb.path=data",
            f"--web.listen-address=127.0.0.1:{port}", "--rules.alert.resend-delay=15s",
            "--storage.tsdb.min-block-duration=2h", "--storage.tsdb.max-block-duration=2h",
        ]  # fmt: skip
        env = {"PYROMETER_CLUSTER": NAME, "PYROMETER_REPLICA": name}
        return _Launch(command, f"http://127.0.0.1:{port}/-/ready", env, self.folder / f"prometheus-{name}")

    @property
    def services(self) -> list[str]:
        """The replicas and what the page adds: each can be killed."""
        return list(self._launches)

    def start(self, name: str) -> None:
        """Start a replica or what was added by ``run``, and wait until it answers. Raises DemoError."""
        launch = self._launches[name]
        self._running[name] = self.processes.start(name, launch.command, launch.env, launch.folder, dispensable=True)
        self.processes.wait_until_ready({name: launch.ready})

    def run(self, name: str, command: Sequence[str], ready: str) -> None:
        """Start a program that the page adds, and wait until an address answers. Raises DemoError."""
        self._launches[name] = _Launch(command, ready)
        self.start(name)

    def kill(self, name: str) -> None:
        """SIGKILL."""
        self._running[name].send_signal(signal.SIGKILL)
        self._running[name].wait()

    def pause(self, name: str) -> None:
        """SIGSTOP: nothing is answered, nothing is closed."""
        self._running[name].send_signal(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """SIGCONT."""
        self._running[name].send_signal(signal.SIGCONT)

    def trained(self, until: float) -> dict[str, int]:
        """Return how many batches of each run began before a Unix time, by what both replicas have together."""
        known: dict[str, int] = {}
        for run in self.nodes.training.runs:
            steps = [step for name in REPLICAS for _, step in kept(self.prometheus(name), run, until)]
            known[run] = max(steps, default=-1) + 1
        return known

    def _configure(self, name: str, page: Mapping[str, str], alertmanager: int) -> None:
        folder = self.folder / f"prometheus-{name}"
        shutil.copytree(project_folder() / "compose/prometheus", folder)
        (folder / "rules").symlink_to(project_folder() / "alert_rules")
        if name != REPLICAS[0]:
            subprocess.run(page["second"], shell=True, check=True, cwd=folder)  # noqa: S602  our own page
        path = folder / "prometheus.yaml"
        above: dict[str, Any] = yaml.safe_load(self.hosts.local(page["prometheus.yaml"], {}))
        path.write_text(yaml.safe_dump(merged(yaml.safe_load(path.read_text()), above), sort_keys=False))
        (folder / "targets").mkdir()
        (folder / "targets/nodes.yaml").write_text(json.dumps(self.nodes.targets))
        (folder / "targets/alertmanager.yaml").write_text(json.dumps([{"targets": [f"127.0.0.1:{alertmanager}"]}]))


def kept(of: Prometheus, run: str, until: float, name: str = STEPS) -> list[tuple[float, int]]:
    """Return time and number of each stored batch of a run, up to a Unix time; empty if none answers."""
    samples = of.samples(f'{name}{{run="{run}"}}[2h]', until)
    return [(at, int(value)) for at, value in samples if not math.isnan(value)]


def wrong(of: Prometheus, pair: Pair, until: float) -> int:
    """Return how many batches are stored that neither replica has with this time and number."""
    found = 0
    for run in pair.nodes.training.runs:
        right = {each for name in REPLICAS for each in kept(pair.prometheus(name), run, until)}
        found += len(set(kept(of, run, until)) - right)
    return found


def differences(of: Prometheus, trained: Mapping[str, int], until: float, name: str = STEPS) -> tuple[int, int]:
    """Return how many batches are lost and how many are there twice, of so many of each run, in a metric."""
    lost = twice = 0
    for run, count in trained.items():
        have = [step for _, step in kept(of, run, until, name)]
        lost += len(set(range(count)) - set(have))
        twice += len(have) - len(set(have))
    return lost, twice


def until_complete(of: Prometheus, pair: Pair, until: float, seconds: float) -> tuple[int, int]:
    """Wait until nothing is lost or there twice; return what is, in the end."""
    deadline = time.monotonic() + seconds
    while True:
        found = differences(of, pair.trained(until), until)
        if found == (0, 0) or time.monotonic() > deadline:
            return found
        time.sleep(2.0)
