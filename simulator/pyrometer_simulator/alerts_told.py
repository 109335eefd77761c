"""Notifications of an Alertmanager to its webhook: when each alert began and ended."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from pathlib import Path

from pyrometer_simulator.demo.processes import Processes
from pyrometer_simulator.http_server import HttpServer, Request, Response
from pyrometer_simulator.ports import free_port
from pyrometer_simulator.shipped import start_alertmanager
from pyrometer_simulator.stack import Stack


class Notifications:
    """The webhook of an Alertmanager: when each alert began to fire, as it was told."""

    def __init__(self) -> None:
        self.begins: dict[str, list[float]] = defaultdict(list)
        self.ends: dict[str, list[float]] = defaultdict(list)
        self._firing: set[str] = set()
        self._server = HttpServer(self._respond).start()
        self.url = f"{self._server.url}/"

    def close(self) -> None:
        """End the webhook."""
        self._server.stop()

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


def start_notifier(folder: Path, stack: Stack, processes: Processes, told: Notifications) -> int:
    """Start an Alertmanager that notifies ``told``, and wait until it answers; return its port. Raises DemoError."""
    port = free_port()
    start_alertmanager(folder, stack, processes, told.url, port)
    processes.wait_until_ready({folder.name: f"http://127.0.0.1:{port}/-/ready"})
    return port
