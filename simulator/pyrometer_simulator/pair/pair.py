"""Two Prometheis with the shipped configuration and a page's changes, on nodes that train; each can be killed."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from pyrometer_simulator.alerts_told import Notifications, start_notifier
from pyrometer_simulator.demo.observe import Prometheus
from pyrometer_simulator.demo.processes import Processes
from pyrometer_simulator.failures import Batches, Services
from pyrometer_simulator.pair.pages import Hosts, merged
from pyrometer_simulator.shipped import configure_prometheus, prometheus_command, target
from pyrometer_simulator.stack import Stack
from pyrometer_simulator.training_nodes import TrainingNodes

NAME = "simulated"
NODES = ("gpu-001", "gpu-002")
REPLICAS = ("a", "b")
PORT = 9090


@dataclass(frozen=True)
class _Launch:
    command: Sequence[str]
    ready: str
    env: Mapping[str, str] = field(default_factory=dict)
    folder: Path | None = None


class Pair(Services):
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
        super().__init__()
        self._launches: dict[str, _Launch] = {}
        self.hosts = Hosts(*(f"prom-{name}" for name in REPLICAS), "alertmanager", *names)
        (folder / "logs").mkdir(parents=True)
        with contextlib.ExitStack() as starting:
            self.processes = starting.enter_context(Processes(folder / "logs"))
            self.told = starting.enter_context(contextlib.closing(Notifications()))
            port = start_notifier(folder / "alertmanager", stack, self.processes, self.told)
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
        for process in self.running.values():
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
        blocks = "--storage.tsdb.min-block-duration=2h", "--storage.tsdb.max-block-duration=2h"
        command = prometheus_command(self._stack, port, *blocks)
        env = {"PYROMETER_CLUSTER": NAME, "PYROMETER_REPLICA": name}
        return _Launch(command, f"http://127.0.0.1:{port}/-/ready", env, self.folder / f"prometheus-{name}")

    @property
    def services(self) -> list[str]:
        """The replicas and what the page adds: each can be killed."""
        return list(self._launches)

    def start(self, name: str) -> None:
        """Start a replica or what was added by ``run``, and wait until it answers. Raises DemoError."""
        launch = self._launches[name]
        self.running[name] = self.processes.start(name, launch.command, launch.env, launch.folder, dispensable=True)
        self.processes.wait_until_ready({name: launch.ready})

    def run(self, name: str, command: Sequence[str], ready: str) -> None:
        """Start a program that the page adds, and wait until an address answers. Raises DemoError."""
        self._launches[name] = _Launch(command, ready)
        self.start(name)

    def batches(self, store: Prometheus) -> Batches:
        """Return the batches in a store beside those that both replicas have together."""
        return Batches(store, [self.prometheus(name) for name in REPLICAS], list(self.nodes.training.runs))

    def _configure(self, name: str, page: Mapping[str, str], alertmanager: int) -> None:
        folder = self.folder / f"prometheus-{name}"
        configure_prometheus(folder, {"nodes": self.nodes.targets, "alertmanager": [target(alertmanager)]})
        if name != REPLICAS[0]:
            subprocess.run(page["second"], shell=True, check=True, cwd=folder)  # noqa: S602  our own page
        path = folder / "prometheus.yaml"
        above: dict[str, Any] = yaml.safe_load(self.hosts.local(page["prometheus.yaml"], {}))
        path.write_text(yaml.safe_dump(merged(yaml.safe_load(path.read_text()), above), sort_keys=False))
