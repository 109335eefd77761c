"""Real node exporters, training, a Prometheus beside the cluster version, and an Alertmanager behind each."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path

from pyrometer_simulator.alerts_told import Notifications, start_notifier
from pyrometer_simulator.demo.observe import Prometheus
from pyrometer_simulator.demo.processes import Processes
from pyrometer_simulator.failures import Batches
from pyrometer_simulator.ports import free_port
from pyrometer_simulator.shipped import configure_prometheus, prometheus_command, target
from pyrometer_simulator.stack import Stack
from pyrometer_simulator.training_nodes import GPUS, TrainingNodes
from pyrometer_simulator.victoria.cluster import Cluster

NAME = "simulated"
NODES = ("gpu-001", "gpu-002", "gpu-003", "gpu-004")
# Trains nothing and dies: the map must go on marking its GPUs as gone.
DEAD = "gpu-005"
# Values of the boards' variables.
VARIABLES = {
    "cluster": NAME, "node": NODES[0], "rack": "r01", "run": f"run-{NODES[0]}", "other": f"run-{NODES[1]}",
    "job": "4711", "serial": "1654900000000",
}  # fmt: skip


class Scene:
    """Everything, started in an empty folder; ``close`` ends it."""

    def __init__(self, folder: Path, stack: Stack) -> None:
        self.folder = folder
        self._stack = stack
        (folder / "logs").mkdir(parents=True)
        with contextlib.ExitStack() as starting:
            self._processes = starting.enter_context(Processes(folder / "logs"))
            self.told = {
                name: starting.enter_context(contextlib.closing(Notifications())) for name in ("prometheus", "victoria")
            }
            alertmanagers = {
                name: start_notifier(folder / f"alertmanager-{name}", stack, self._processes, told)
                for name, told in self.told.items()
            }
            outside = {"alertmanager": alertmanagers["victoria"]}
            self.cluster = Cluster(folder / "cluster", outside, {"PYROMETER_CLUSTER": NAME})
            starting.callback(self.cluster.close)
            made = TrainingNodes(folder / "nodes", self._processes, NODES, (DEAD,), NAME)
            self.training, targets = made.training, made.targets
            self.training_nodes = {name: made.nodes[name] for name in NODES}
            starting.callback(self.training.stop)
            (self.cluster.targets / "nodes.yaml").write_text(json.dumps(targets))
            self.prometheus = Prometheus(self._prometheus(targets, alertmanagers["prometheus"]))
            self.cluster.start_all()
            self.victoria = Prometheus(self.cluster.url)
            self.batches = Batches(self.victoria, [self.prometheus], list(self.training.runs))
            self.training.start()
            self._ending = starting.pop_all()

    def lose_a_node(self) -> None:
        """End the exporter of ``DEAD`` once both know its GPUs; raises TimeoutError where one does not in time."""
        known = f'count(gpu:pyrometer_gpu:expected{{node="{DEAD}"}})'
        deadline = time.monotonic() + 180.0
        while not all(each.value(known) == GPUS for each in (self.prometheus, self.victoria)):
            if time.monotonic() > deadline:
                raise TimeoutError(known)
            time.sleep(1.0)
        self._processes.end(DEAD)

    def close(self) -> None:
        """End everything."""
        self._ending.close()

    def _prometheus(self, targets: list[dict[str, object]], alertmanager: int) -> str:
        folder, port = self.folder / "prometheus", free_port()
        configure_prometheus(folder, {"nodes": targets, "alertmanager": [target(alertmanager)]}, self.cluster.rules)
        command = prometheus_command(self._stack, port)
        self._processes.start("prometheus", command, {"PYROMETER_CLUSTER": NAME}, folder)
        self._processes.wait_until_ready({"prometheus": f"http://127.0.0.1:{port}/-/ready"})
        return f"http://127.0.0.1:{port}"
