"""A node exporter for each node and one Prometheus, with the project's own rules and configuration."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pyrometer_simulator.demo.observe import Prometheus
from pyrometer_simulator.demo.processes import Processes
from pyrometer_simulator.ports import free_port
from pyrometer_simulator.shipped import configure_prometheus, prometheus_command, target
from pyrometer_simulator.stack import find_stack
from pyrometer_simulator.torch_jobs.spec import node_name

CLUSTER = "bench"
ALERTS = "TrainStraggler|TrainStalled|TrainRunDied|NcclHang|NcclRankMissing|NcclJobNotStarted"


class Named(NamedTuple):
    """An alert, with whom it names; empty where it names nobody."""

    alertname: str
    run: str
    node: str
    rank: str
    gpu: str
    job_id: str


@dataclass
class Monitoring:
    """Exporters and Prometheus; ``first_seen`` has when each alert was first seen firing, in Unix time."""

    folder: Path
    processes: Processes
    prometheus: Prometheus
    first_seen: dict[Named, float]

    @classmethod
    def start(
        cls, folder: Path, processes: Processes, nodes: int, flags: Mapping[str, Sequence[str]] | None = None
    ) -> Monitoring:
        """Start everything and wait until it answers; ``flags`` are further ones of the exporters, by node."""
        ports = {node_name(index): free_port() for index in range(nodes)}
        for node, port in ports.items():
            _start_exporter(folder, processes, node, port, (flags or {}).get(node, ()))
        where = free_port()
        _start_prometheus(folder, processes, where, ports)
        urls = {node: f"http://127.0.0.1:{port}/-/ready" for node, port in ports.items()}
        processes.wait_until_ready({**urls, "prometheus": f"http://127.0.0.1:{where}/-/ready"})
        return cls(folder, processes, Prometheus(f"http://127.0.0.1:{where}"), {})

    def look(self) -> None:
        """Note the alerts that fire now."""
        now = time.time()
        for labels in self.prometheus.values(f'ALERTS{{alertstate="firing",alertname=~"{ALERTS}"}}'):
            found = json.loads(labels)
            named = Named(*(found.get(name, "") for name in Named._fields))
            self.first_seen.setdefault(named, now)


def _start_exporter(folder: Path, processes: Processes, node: str, port: int, flags: Sequence[str]) -> None:
    own = folder / node
    for name in ("rings", "state", "sys"):
        (own / name).mkdir(parents=True, exist_ok=True)
    off = [f"--no-collector.{name}" for name in ("gpu", "nic", "kernel")]
    command = [
        sys.executable, "-m", "pyrometer_exporters.node.main", f"--web.listen-address=127.0.0.1:{port}",
        f"--path.rings={own / 'rings'}", f"--path.state={own / 'state'}", f"--path.sysfs={own / 'sys'}", *off, *flags,
    ]  # fmt: skip
    processes.start(node, command)


def _start_prometheus(folder: Path, processes: Processes, where: int, ports: Mapping[str, int]) -> None:
    own = folder / "prometheus"
    configure_prometheus(own, {"nodes": [target(port, cluster=CLUSTER, node=node) for node, port in ports.items()]})
    command = prometheus_command(find_stack(), where)
    processes.start("prometheus", command, env={"PYROMETER_CLUSTER": CLUSTER}, cwd=own)
