"""Run the real node exporter on a machine of the zoo, and store what the alert rules need of it."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from pyrometer_exporters.framework.collector import Collector, Context
from pyrometer_exporters.node.checks.kept import FILE
from pyrometer_simulator.nvml import FakeLibrary
from pyrometer_simulator.overrides import override
from pyrometer_simulator.situations.checks import checks_on
from pyrometer_simulator.situations.exported_node import ExportedNode, Hardware
from pyrometer_simulator.situations.recording import Recording
from pyrometer_simulator.situations.site import CLUSTER, Series
from pyrometer_simulator.situations.verdict import Case
from pyrometer_simulator.zoo.machine import Machine

SCRAPE_SECONDS: Final = 60
# A week of evaluations each minute takes promtool minutes; what waits for ten minutes is seen at five, too.
WEEK_EVALUATED_SECONDS: Final = 300
MAINTENANCE: Final = "/var/lib/pyrometer/maintenance"
"""The file with which people announce work; an event may write it, and remove it."""
_HARDWARE: Final = Hardware(collectors=("gpu", "nic", "kernel", "maintenance", "checks"))


class _Clock:
    """Reads the machine's clocks; the wall's begins with the week, as promtool's does."""

    def __init__(self, machine: Machine) -> None:
        self._machine, self._start = machine, machine.wall

    def wall(self) -> float:
        """Return seconds since the week began."""
        return self._machine.wall - self._start

    def monotonic(self) -> float:
        """Return seconds since the boot."""
        return self._machine.uptime()


class ExportedMachine(ExportedNode):
    """Runs the real node exporter on a machine, and stores of it what Prometheus would have stored.

    ``wanted`` are the metrics that rules use, which are evaluated ``every`` so many seconds.

    Between events nobody scrapes, as a week of scrapes is dear: Prometheus has gaps there.
    """

    def __init__(self, machine: Machine, wanted: Collection[str], every: int = WEEK_EVALUATED_SECONDS) -> None:
        self._machine, self._wanted, self._every = machine, wanted, every
        self._start = machine.wall
        root, name = machine.root, machine.description.folder.name
        folder = Path(tempfile.mkdtemp(prefix="exporter-", dir=root))
        self._maintenance = root / MAINTENANCE.lstrip("/")
        hardware = replace(_HARDWARE, flags=(f"--collector.maintenance.file={self._maintenance}",))
        super().__init__(
            name, folder, hardware, _Clock(machine), sysfs=root / "sys", procfs=root / "proc", kmsg=machine.log.path
        )
        self._take_over(root / "state" / FILE)
        self._recording = Recording({"cluster": CLUSTER, "node": name, "job": "node", "instance": name}, wanted)

    def _take_over(self, path: Path) -> None:
        """Know of the machine what its checks have learned, by this exporter's clock."""
        if path.exists():
            kept = json.loads(path.read_text(encoding="utf-8"))
            moved = {name: kept[name] - self._start for name in ("since", "at")}
            (self.state / FILE).write_text(json.dumps({**kept, **moved}), encoding="utf-8")

    def scrape(self) -> None:
        """Scrape once, at the machine's time."""
        if self._maintenance.exists():  # its age counts by this exporter's clock
            os.utime(self._maintenance, (self._clock.wall(), self._clock.wall()))
        number = int((self._machine.wall - self._start) // SCRAPE_SECONDS)
        self._recording.scrapes = max(self._recording.scrapes, number)
        self._recording.take(self.served(self._wanted))

    def case(self) -> Case:
        """Return what was stored, for the rules."""
        series: Sequence[Series] = list(self._recording.series())
        return Case(series, SCRAPE_SECONDS, self._every, float(self._recording.scrapes * SCRAPE_SECONDS))

    @override
    def _build_checks(self) -> Callable[[Context], Collector]:
        return checks_on(self._machine.root / "checks.yaml", self._machine.file_systems)

    @override
    def _new_library(self) -> FakeLibrary | None:
        machine = self._machine
        return FakeLibrary(machine.root / "gpus", machine.since_creation) if machine.tree.gpus else None

    @override
    def _before_scrape(self) -> None:
        self._machine.write_uptime()
