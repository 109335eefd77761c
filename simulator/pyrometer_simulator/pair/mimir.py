"""Mimir above a pair, with the configuration of docs/howto/mimir.md."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import yaml

from pyrometer_simulator.alerts_told import Notifications, start_notifier
from pyrometer_simulator.demo.observe import Prometheus
from pyrometer_simulator.pair.pages import blocks
from pyrometer_simulator.pair.pair import Pair
from pyrometer_simulator.ports import free_port
from pyrometer_simulator.shipped import project_folder
from pyrometer_simulator.stack import Stack
from pyrometer_simulator.training_nodes import STEPS

PAGE = "docs/howto/mimir.md"
HTTP = 9009
# Batches as they would be without the page: by the tracker, which drops what the other replica sends.
TRACKED = "tracked_batch_step"
CONTROL = {
    "name": "control",
    "write_relabel_configs": [
        {"source_labels": ["__name__"], "regex": STEPS, "action": "keep"},
        {"target_label": "__name__", "replacement": TRACKED},
    ],
}


class Mimir:
    """A pair that writes to a Mimir, started in an empty folder; ``close`` ends both.

    Attributes:
        pair: the Prometheis, their nodes and their Alertmanager.
        query: what boards ask.
        told: what the ruler's Alertmanager told of; on the page it is the same one.
    """

    def __init__(self, folder: Path, stack: Stack, program: Path) -> None:
        page = blocks(project_folder() / PAGE)
        page["prometheus.yaml"] = _with_control(page["prometheus.yaml"])
        with contextlib.ExitStack() as starting:
            self.told = starting.enter_context(contextlib.closing(Notifications()))
            self.pair = starting.enter_context(contextlib.closing(Pair(folder, stack, page, ("mimir",))))
            teller = start_notifier(folder / "alertmanager-rule", stack, self.pair.processes, self.told)
            self._configure(page["mimir.yaml"], teller)
            self.query = Prometheus(f"{self._start(program, page['mimir'])}/prometheus")
            self._ending = starting.pop_all()

    def close(self) -> None:
        """End everything."""
        self._ending.close()

    def _start(self, program: Path, command: str) -> str:
        """Start Mimir with the page's command and wait until it answers; return its address."""
        port = self.pair.hosts.port("mimir", HTTP)
        _, *flags = self.pair.hosts.command(command, {"/mimir/": self.pair.folder / "mimir"})
        free = [
            f"-server.http-listen-port={port}", f"-server.grpc-listen-port={free_port()}",
            f"-memberlist.bind-port={free_port()}", "-log.level=warn",
        ]  # fmt: skip
        self.pair.run("mimir", [str(program), *flags, *free], f"http://127.0.0.1:{port}/ready")
        return f"http://127.0.0.1:{port}"

    def _configure(self, text: str, teller: int) -> None:
        folder = self.pair.folder / "mimir"
        (folder / "rules").mkdir(parents=True)
        (folder / "rules/anonymous").symlink_to(self.pair.folder / "prometheus-a/rules")
        text = text.replace("http://alertmanager:9093", f"http://127.0.0.1:{teller}")
        (folder / "mimir.yaml").write_text(self.pair.hosts.local(text, {"/mimir/": folder}))


def _with_control(text: str) -> str:
    """Return the page's configuration with one more remote write, of batches with the replica's label."""
    whole: dict[str, Any] = yaml.safe_load(text)
    whole["remote_write"].append({**CONTROL, "url": whole["remote_write"][0]["url"]})
    return yaml.safe_dump(whole, sort_keys=False)
