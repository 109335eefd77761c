"""The collector ``checks`` of a simulated node: looks are made in this process, when a scrape comes and one is due."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from pyrometer_exporters.commands.check.report import as_json
from pyrometer_exporters.framework.collector import Collector, Context
from pyrometer_exporters.framework.metrics import Down, Sample
from pyrometer_exporters.node.checks.collector import FIRST_SECONDS, INTERVAL_FLAG, ChecksCollector
from pyrometer_exporters.node.checks.gpus import DriverAsker
from pyrometer_exporters.node.checks.look import Looker
from pyrometer_exporters.node.checks.node import Paths
from pyrometer_exporters.node.checks.workers import run_here
from pyrometer_simulator.host_files import FileSystems
from pyrometer_simulator.overrides import override


class SteppedChecksCollector(ChecksCollector):
    """Looks before it answers, on the node's own clock, instead of in a thread that waits in real time."""

    def __init__(self, context: Context, config: Path | None, disks: FileSystems) -> None:
        self._clock = context.clock
        self._due = context.clock.monotonic() + FIRST_SECONDS
        self._every: float = getattr(context.flags, INTERVAL_FLAG)
        paths = Paths(context.sysfs, context.procfs, Path("/"), context.kmsg)
        own = {
            "statvfs": disks.statvfs,
            "clock_state": lambda: 0,
            "boottime": context.clock.monotonic,
        }
        looker = Looker(paths, config, context.state, DriverAsker(), run_here, context.clock.wall, own)

        def ask() -> Mapping[str, Any]:
            told: Mapping[str, Any] = json.loads(as_json(looker.look(keep=True), fail_open=False))
            return told

        super().__init__(context, ask)

    @override
    def collect(self, until: float) -> Iterable[Sample | Down]:
        """Look if it is time, and yield the latest answers."""
        if self._clock.monotonic() >= self._due:
            self._due = self._clock.monotonic() + self._every
            self.look()
        return super().collect(until)

    @override
    def _start(self) -> None:
        """Start no thread."""


def checks_on(config: Path | None, disks: FileSystems) -> Callable[[Context], Collector]:
    """Return how the collector of a node with this configuration and these file systems is built."""
    return lambda context: SteppedChecksCollector(context, config, disks)
