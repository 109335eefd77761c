"""Real node exporters, training, a Prometheus beside the cluster version, and an Alertmanager behind each."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path

import pyrometer
from pyrometer_simulator.demo.hardware import Node
from pyrometer_simulator.demo.observe import Prometheus
from pyrometer_simulator.demo.processes import Processes
from pyrometer_simulator.demo.programs import project_folder
from pyrometer_simulator.http_server import HttpServer, Request, Response
from pyrometer_simulator.ports import free_port
from pyrometer_simulator.stack import Stack
from pyrometer_simulator.victoria.cluster import Cluster

NAME = "simulated"
NODES = ("gpu-001", "gpu-002", "gpu-003", "gpu-004")
GPUS = 8
# A batch each 200 ms, and a second one right after it.
STEP_SECONDS = 0.2
STEPS = "pyrometer_train_batch_step"
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


class Notifications:
    """The webhook of an Alertmanager: when each alert began to fire, as it was told."""

    def __init__(self) -> None:
        self.begins: dict[str, list[float]] = defaultdict(list)
        self.ends: dict[str, list[float]] = defaultdict(list)
        self._firing: set[str] = set()
        self._server = HttpServer(self._respond)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """End the webhook."""
        self._server.shutdown()
        self._server.server_close()

    def _respond(self, request: Request) -> Response:
        for alert in json.loads(request.body)["alerts"]:
            labels = json.dumps(alert["labels"], sort_keys=True)
            if alert["status"] == "firing" and labels not in self._firing:
                self._firing.add(labels)
                self.begins[labels].append(time.time())
            elif alert["status"] == "resolved" and labels in self._firing:
                self._firing.discard(labels)
                self.ends[labels].append(time.time())
        return Response(b"")


class Training(threading.Thread):
    """One run on each node, whose batches come in pairs that are a millisecond or two apart."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self.runs = {
            f"run-{node}": pyrometer.start(f"run-{node}", rings=str(folder / node / "rings"), rank=0, world_size=1)
            for node in NODES
        }
        self._stopped = threading.Event()

    def run(self) -> None:
        """Train until stopped."""
        while not self._stopped.wait(STEP_SECONDS):
            for run in self.runs.values():
                for _ in range(2):
                    with run.step():
                        run.record(loss=1.0)

    def stop(self) -> None:
        """End the loop; the runs are still there."""
        self._stopped.set()
        self.join()


class Scene:
    """Everything, started in an empty folder; ``close`` ends it."""

    def __init__(self, folder: Path, stack: Stack) -> None:
        self.folder = folder
        self._stack = stack
        self._ending = contextlib.ExitStack()
        (folder / "logs").mkdir(parents=True)
        self._processes = self._ending.enter_context(Processes(folder / "logs"))
        self.told = {name: Notifications() for name in ("prometheus", "victoria")}
        alertmanagers = {name: self._alertmanager(name) for name in self.told}
        outside = {"alertmanager": alertmanagers["victoria"]}
        self.cluster = Cluster(folder / "cluster", outside, {"PYROMETER_CLUSTER": NAME})
        self._ending.callback(self.cluster.close)
        self.nodes = {node: Node(folder / "nodes" / node, number, GPUS) for number, node in enumerate(NODES, 1)}
        ports = {node: self._exporter(node) for node in NODES}
        targets: list[dict[str, object]] = [
            {"targets": [f"127.0.0.1:{port}"], "labels": {"cluster": NAME, "node": node, "rack": "r01"}}
            for node, port in ports.items()
        ]
        (self.cluster.targets / "nodes.yaml").write_text(json.dumps(targets))
        self.prometheus = Prometheus(self._prometheus(targets, alertmanagers["prometheus"]))
        self.training = Training(folder / "nodes")
        self.cluster.start_all()
        self.victoria = Prometheus(self.cluster.url)
        self.training.start()

    def close(self) -> None:
        """End everything."""
        self.training.stop()
        for run in self.training.runs.values():
            run.close()
        self._ending.close()
        for each in self.told.values():
            each.close()

    def kept(self, of: Prometheus, run: str, until: float) -> list[tuple[float, int]]:
        """Return timestamp and number of each stored batch of a run, up to a Unix time; empty if none answers."""
        samples = of.samples(f'{STEPS}{{run="{run}"}}[2h]', until)
        # VictoriaMetrics shows where a series ended for a moment; Prometheus has such marks too, and hides them.
        return [(at, int(value)) for at, value in samples if not math.isnan(value)]

    def _alertmanager(self, name: str) -> int:
        folder, port = self.folder / f"alertmanager-{name}", free_port()
        shutil.copytree(project_folder() / "compose/alertmanager", folder)
        (folder / "alerting.url").write_text(self.told[name].url)
        command = [
            *self._stack.alertmanager_command, "--config.file=alertmanager.yaml", "--storage.path=data",
            f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address=",
        ]  # fmt: skip
        self._processes.start(f"alertmanager-{name}", command, {"URL_FILE_BASE": str(folder)}, folder)
        self._processes.wait_until_ready({name: f"http://127.0.0.1:{port}/-/ready"})
        return port

    def _exporter(self, node: str) -> int:
        folder, port = self.folder / "nodes" / node, free_port()
        command = [
            sys.executable, "-m", "pyrometer_simulator.node", f"--gpus={folder / 'gpus'}", "--",
            f"--web.listen-address=127.0.0.1:{port}", f"--path.sysfs={folder / 'sys'}",
            f"--path.procfs={folder / 'proc'}", f"--path.rings={folder / 'rings'}",
            f"--path.state={folder / 'state'}", f"--path.kmsg={folder / 'kmsg'}",
            "--collector.checks.interval=3600", "--no-collector.nccl",
        ]  # fmt: skip
        self._processes.start(node, command, ONE_THREAD)
        self._processes.wait_until_ready({node: f"http://127.0.0.1:{port}/-/ready"})
        return port

    def _prometheus(self, targets: list[dict[str, object]], alertmanager: int) -> str:
        folder, port = self.folder / "prometheus", free_port()
        shutil.copytree(project_folder() / "compose/prometheus", folder)
        (folder / "rules").symlink_to(project_folder() / "alert_rules")
        (folder / "targets").mkdir()
        (folder / "targets/nodes.yaml").write_text(json.dumps(targets))
        (folder / "targets/alertmanager.yaml").write_text(json.dumps([{"targets": [f"127.0.0.1:{alertmanager}"]}]))
        command = [
            str(self._stack.prometheus), "--config.file=prometheus.yaml", "--storage.tsdb.path=data",
            f"--web.listen-address=127.0.0.1:{port}", "--rules.alert.resend-delay=15s",
        ]  # fmt: skip
        self._processes.start("prometheus", command, {"PYROMETER_CLUSTER": NAME}, folder)
        self._processes.wait_until_ready({"prometheus": f"http://127.0.0.1:{port}/-/ready"})
        return f"http://127.0.0.1:{port}"
