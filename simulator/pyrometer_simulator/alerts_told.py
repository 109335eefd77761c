"""Alertmanager and Prometheus with the shipped configuration, and when each alert was told to have begun and ended."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from pyrometer_simulator.demo.processes import Processes
from pyrometer_simulator.demo.programs import project_folder
from pyrometer_simulator.http_server import HttpServer, Request, Response
from pyrometer_simulator.ports import free_port
from pyrometer_simulator.stack import Stack


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

    def find(self, **labels: str) -> list[str]:
        """Return the alerts that were told of with these labels among theirs, as JSON of all their labels."""
        return [each for each in list(self.begins) if labels.items() <= json.loads(each).items()]

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


def configure_prometheus(folder: Path, rules: Path, targets: Sequence[object], alertmanager: int) -> None:
    """Write the shipped configuration into a new folder, with these rules, nodes and the port of an Alertmanager."""
    shutil.copytree(project_folder() / "compose/prometheus", folder)
    (folder / "rules").symlink_to(rules)
    (folder / "targets").mkdir()
    (folder / "targets/nodes.yaml").write_text(json.dumps(targets))
    (folder / "targets/alertmanager.yaml").write_text(json.dumps([{"targets": [f"127.0.0.1:{alertmanager}"]}]))


def prometheus_command(stack: Stack, port: int, *flags: str) -> list[str]:
    """Return the command that starts Prometheus in such a folder."""
    return [
        str(stack.prometheus), "--config.file=prometheus.yaml", "--storage.tsdb.path=data",
        f"--web.listen-address=127.0.0.1:{port}", "--rules.alert.resend-delay=15s", *flags,
    ]  # fmt: skip


def start_alertmanager(folder: Path, stack: Stack, processes: Processes, told: Notifications) -> int:
    """Start an Alertmanager with the shipped configuration in a new folder; return its port. Raises DemoError."""
    port = free_port()
    shutil.copytree(project_folder() / "compose/alertmanager", folder)
    (folder / "alerting.url").write_text(told.url)
    command = [
        *stack.alertmanager_command, "--config.file=alertmanager.yaml", "--storage.path=data",
        f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address=",
    ]  # fmt: skip
    processes.start(folder.name, command, {"URL_FILE_BASE": str(folder)}, folder)
    processes.wait_until_ready({folder.name: f"http://127.0.0.1:{port}/-/ready"})
    return port
