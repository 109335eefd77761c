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
from pyrometer_simulator.shipped import (
    configure_prometheus,
    prometheus_command,
    start_alerting,
    start_alertmanager,
    target,
)
from pyrometer_simulator.slack import FakeSlack
from pyrometer_simulator.stack import find_stack
from pyrometer_simulator.torch_jobs.spec import node_name

CLUSTER, CHANNEL = "bench", "gpu-alerts"
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
        cls,
        folder: Path,
        processes: Processes,
        nodes: int,
        flags: Mapping[str, Sequence[str]] | None = None,
        *,
        slack: FakeSlack | None = None,
        cluster_exporter: int = 0,
    ) -> Monitoring:
        """Start everything and wait until it answers.

        Args:
            folder: Of all nodes; one with simulated GPUs, ``NODE/gpus``, reports them where its flags say so.
            processes: Ends everything.
            nodes: How many there are.
            flags: Further flags of the exporters, by node.
            slack: Where given, it hears of the alerts by way of an Alertmanager and the alerting service.
            cluster_exporter: Port of one that was started, to be scraped as well.
        """
        ports = {node_name(index): free_port() for index in range(nodes)}
        for node, port in ports.items():
            _start_exporter(folder, processes, node, port, (flags or {}).get(node, ()))
        where, *channel = free_port(), free_port(), free_port()
        targets = {"nodes": [target(port, cluster=CLUSTER, node=node) for node, port in ports.items()]}
        targets["cluster"] = [target(cluster_exporter, cluster=CLUSTER)] if cluster_exporter else []
        urls = {node: f"http://127.0.0.1:{port}" for node, port in ports.items()}
        urls["prometheus"] = f"http://127.0.0.1:{where}"
        if slack is not None:
            urls["alertmanager"], urls["alerting"] = (f"http://127.0.0.1:{port}" for port in channel)
            targets["alertmanager"] = [target(channel[0], cluster=CLUSTER)]
            _start_channel(folder, processes, slack, urls)
        _start_prometheus(folder, processes, where, targets)
        processes.wait_until_ready({name: f"{url}/-/ready" for name, url in urls.items()})
        return cls(folder, processes, Prometheus(urls["prometheus"]), {})

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
    gpus = own / "gpus"
    real, simulated = ["pyrometer_exporters.node.main"], ["pyrometer_simulator.node", f"--gpus={gpus}", "--"]
    command = [
        sys.executable, "-m", *(simulated if gpus.exists() else real), f"--web.listen-address=127.0.0.1:{port}",
        f"--path.rings={own / 'rings'}", f"--path.state={own / 'state'}", f"--path.sysfs={own / 'sys'}", *off, *flags,
    ]  # fmt: skip
    processes.start(node, command)


def _start_channel(folder: Path, processes: Processes, slack: FakeSlack, urls: Mapping[str, str]) -> None:
    ports = {name: int(url.rpartition(":")[2]) for name, url in urls.items()}
    start_alerting(
        folder, processes, ports["alerting"], slack,
        channel=CHANNEL, prometheus=urls["prometheus"], alertmanager=urls["alertmanager"],
    )  # fmt: skip
    webhook = f"{urls['alerting']}/api/v1/alertmanager"
    start_alertmanager(folder / "alertmanager", find_stack(), processes, webhook, ports["alertmanager"])


def _start_prometheus(folder: Path, processes: Processes, where: int, targets: Mapping[str, Sequence[object]]) -> None:
    own = folder / "prometheus"
    configure_prometheus(own, targets)
    command = prometheus_command(find_stack(), where)
    processes.start("prometheus", command, env={"PYROMETER_CLUSTER": CLUSTER}, cwd=own)
