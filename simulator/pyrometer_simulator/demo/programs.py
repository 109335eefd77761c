"""Starting everything: the exporters of nodes and cluster, Prometheus, Alertmanager, the alerting service."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from pyrometer_simulator.demo import nccl_job, scenario
from pyrometer_simulator.demo.addresses import Addresses
from pyrometer_simulator.demo.cluster import Cluster
from pyrometer_simulator.demo.drawn.queries import has_pages
from pyrometer_simulator.demo.hardware import FIRST_PID, Node, exporter_flags
from pyrometer_simulator.demo.processes import Processes
from pyrometer_simulator.demo.topology import (
    CHANNEL,
    CLUSTER,
    GPUS_PER_NODE,
    JOB,
    NCCL_NODES,
    NODES,
    RUN,
    TRAINER,
    TRAINING_NODES,
)
from pyrometer_simulator.demo.trainer import Settings
from pyrometer_simulator.shipped import (
    configure_prometheus,
    prometheus_command,
    start_alerting,
    start_alertmanager,
    target,
)
from pyrometer_simulator.slack import FakeSlack
from pyrometer_simulator.stack import Stack

NODE_NOTICE = "SIMULATED HARDWARE: the GPUs and links of this node are not real"
NOTICE = "SIMULATED HARDWARE: the GPUs, links and Slack of this demo are not real"

# One thread per program: numpy would else start one per core in each, and they would fight for the same two.
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class Programs:
    """Starts the programs in the order in which they need each other."""

    def __init__(
        self,
        folder: Path,
        processes: Processes,
        stack: Stack,
        slack: FakeSlack,
        addresses: Addresses | None = None,
        *,
        cluster: Cluster,
        grafana: bool = False,
    ) -> None:
        self.folder = folder
        self.addresses = addresses or Addresses()
        self._cluster = cluster
        self._grafana = grafana
        self.without_pages: frozenset[str] = frozenset()
        self._processes = processes
        self.stack = stack
        self._slack = slack

    def start_all(self) -> None:
        """Start everything and wait until it answers. Raises DemoError."""
        where = self.addresses
        self._start_nodes()
        webhook = f"{where.url(where.alerting)}/api/v1/alertmanager"
        start_alertmanager(self.folder / "alertmanager", self.stack, self._processes, webhook, where.alertmanager)
        self._start_prometheus()
        servers = {"alertmanager": where.url(where.alertmanager), "prometheus": where.url(where.prometheus)}
        self._processes.wait_until_ready({name: f"{url}/-/ready" for name, url in servers.items()})
        self.without_pages = frozenset(name for name, url in servers.items() if not has_pages(url))
        self._start_alerting()
        self._processes.wait_until_ready(dict(self._ready_urls()))

    def start_training(self) -> None:
        """Start both jobs."""
        folder = str(self.folder / "nodes")
        training = Settings(RUN, folder, TRAINING_NODES, GPUS_PER_NODE).json()
        other = nccl_job_settings(folder, "127.0.0.1", self.addresses.ras).json()
        for name, settings in ((TRAINER, training), ("nccl_job", other)):
            command = [sys.executable, "-m", f"pyrometer_simulator.demo.{name}", settings]
            self._processes.start(name, command, env=_ONE_THREAD)

    def node_folder(self, node: str) -> Path:
        """Return the folder of a simulated node's driver state, sysfs and rings."""
        return self.folder / "nodes" / node

    def _targets(self) -> Iterator[tuple[str, list[dict[str, object]]]]:
        where = self.addresses
        nodes = [target(port, cluster=CLUSTER, node=node, rack=_rack(node)) for node, port in where.nodes.items()]
        yield "nodes", nodes
        yield "cluster", [target(where.cluster, cluster=CLUSTER)]
        yield "alerting", [target(where.alerting, cluster=CLUSTER)]
        yield "prometheus", [target(where.prometheus, cluster=CLUSTER)]
        yield "alertmanager", [target(where.alertmanager, cluster=CLUSTER)]

    def _start_nodes(self) -> None:
        for node, port in self.addresses.nodes.items():
            folder = self.node_folder(node)
            command = [
                sys.executable, "-m", "pyrometer_simulator.node", *exporter_flags(folder, f"127.0.0.1:{port}"),
                # Eight nodes share this machine: their checks run once.
                "--collector.checks.interval=3600", f"--web.notice={NODE_NOTICE}",
                *nccl_flags(node, f"127.0.0.1:{self.addresses.ras}"),
            ]  # fmt: skip
            self._processes.start(node, command, env=_ONE_THREAD)
        cluster = [
            sys.executable, "-m", "pyrometer_exporters.cluster.main",
            f"--web.listen-address=127.0.0.1:{self.addresses.cluster}", f"--path.state={self.folder / 'cluster-state'}",
            f"--prometheus.url={self.addresses.url(self.addresses.prometheus)}", f"--web.notice={NODE_NOTICE}",
            *self._cluster.exporter_flags(),
        ]  # fmt: skip
        self._processes.start("cluster", cluster, env=_ONE_THREAD)

    def _start_alerting(self) -> None:
        where = self.addresses
        prometheus, alertmanager = where.url(where.prometheus), where.url(where.alertmanager)
        queries = where.url(where.queries)
        flags = [
            # Browsers are on this machine too.
            f"--prometheus.external-url={queries if 'prometheus' in self.without_pages else prometheus}",
            f"--alertmanager.external-url={queries if 'alertmanager' in self.without_pages else alertmanager}",
            f"--notice={NOTICE}", "--digest.daily=09:00", "--digest.weekly=mon 09:00",
            *([f"--grafana.url={where.url(where.grafana)}"] if self._grafana else []),
        ]  # fmt: skip
        start_alerting(
            self.folder, self._processes, where.alerting, self._slack, *flags,
            channel=CHANNEL, prometheus=prometheus, alertmanager=alertmanager, env=_ONE_THREAD,
        )  # fmt: skip

    def _start_prometheus(self) -> None:
        folder = self.folder / "prometheus"
        configure_prometheus(folder, dict(self._targets()))
        command = prometheus_command(self.stack, self.addresses.prometheus, "--storage.tsdb.retention.time=6h")
        self._processes.start("prometheus", command, env={"PYROMETER_CLUSTER": CLUSTER}, cwd=folder)

    def _ready_urls(self) -> Iterator[tuple[str, str]]:
        where = self.addresses
        for name, port in {**where.nodes, "cluster": where.cluster, "alerting": where.alerting}.items():
            yield name, f"{where.url(port)}/-/ready"


def nccl_job_settings(folder: str, host: str, port: int) -> nccl_job.Settings:
    """Return the settings of the job without the client, whose RAS socket is at this address."""
    return nccl_job.Settings(folder, tuple(NODES.index(node) + 1 for node in NCCL_NODES), host, port)


def run_processes(nodes: Mapping[str, Node]) -> None:
    """Let the nodes have the processes of both jobs, each numbered from the same on."""
    for job, names in ((scenario.HUNG_JOB, NCCL_NODES), (JOB, TRAINING_NODES)):
        for index, name in enumerate(names):
            if name in nodes:
                first = FIRST_PID + GPUS_PER_NODE * index
                nodes[name].run_processes(job, range(first, first + GPUS_PER_NODE))


def nccl_flags(node: str, address: str) -> list[str]:
    """Return the exporter's flags for NCCL: only the nodes of that job have a socket."""
    return [f"--collector.nccl.address={address}"] if node in NCCL_NODES else ["--no-collector.nccl"]


def _rack(node: str) -> str:
    return f"r{(NODES.index(node) // 4) + 1:02d}"
