"""The real node exporter on a machine of the zoo, and the alerts that its week makes fire."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from pyrometer_exporters.framework.collector import Collector, Context
from pyrometer_simulator.nvml import FakeLibrary
from pyrometer_simulator.situations.checks import checks_on
from pyrometer_simulator.situations.exported_node import ExportedNode, Hardware
from pyrometer_simulator.situations.recording import Recording
from pyrometer_simulator.situations.site import CLUSTER, Series
from pyrometer_simulator.situations.verdict import Case, Rules, evaluate
from pyrometer_simulator.zoo.machine import Machine

SCRAPE_SECONDS: Final = 60
# A week of evaluations each minute takes promtool minutes; what waits for ten minutes is seen at five, too.
_EVALUATED_SECONDS: Final = 300
_HARDWARE: Final = Hardware(collectors=("gpu", "nic", "kernel", "maintenance", "checks"))


class _Clock:
    """The machine's clocks; the wall's begins with the week, as promtool's does."""

    def __init__(self, machine: Machine) -> None:
        self._machine, self._start = machine, machine.wall

    def wall(self) -> float:
        """Return seconds since the week began."""
        return self._machine.wall - self._start

    def monotonic(self) -> float:
        """Return seconds since the boot."""
        return self._machine.uptime()


class ExportedMachine(ExportedNode):
    """A machine under the real node exporter, and what Prometheus would have stored of it.

    Between events nobody scrapes, as a week of scrapes is dear: Prometheus has gaps there.
    """

    def __init__(self, machine: Machine, wanted: Collection[str]) -> None:
        self._machine, self._wanted = machine, wanted
        self._start = machine.wall
        root, name = machine.root, machine.description.folder.name
        folder = root / "exporter"
        (folder / "state").mkdir(parents=True)
        super().__init__(
            name, folder, _HARDWARE, _Clock(machine), sysfs=root / "sys", procfs=root / "proc", kmsg=machine.log.path
        )
        self._recording = Recording({"cluster": CLUSTER, "node": name, "job": "node", "instance": name}, wanted)

    def scrape(self) -> None:
        """Scrape once, at the machine's time."""
        number = int((self._machine.wall - self._start) // SCRAPE_SECONDS)
        self._recording.scrapes = max(self._recording.scrapes, number)
        self._recording.take(self.served(self._wanted))

    def case(self) -> Case:
        """Return what was stored, for the rules."""
        series: Sequence[Series] = list(self._recording.series())
        return Case(series, SCRAPE_SECONDS, _EVALUATED_SECONDS, float(self._recording.scrapes * SCRAPE_SECONDS))

    def _build_checks(self) -> Callable[[Context], Collector]:
        return checks_on(self._machine.root / "checks.yaml", self._machine.file_systems)

    def _new_library(self) -> FakeLibrary | None:
        machine = self._machine
        return FakeLibrary(machine.root / "gpus", machine.since_creation) if machine.tree.gpus else None

    def _before_scrape(self) -> None:
        self._machine.write_uptime()


def alerts(promtool: Path, rules: Rules, cases: Mapping[str, Case]) -> Iterator[tuple[str, str]]:
    """Yield which alerts fire on which machine, with what they name."""
    for name, fired in zip(cases, evaluate(promtool, rules, list(cases.values())), strict=True):
        for alert in fired:
            yield name, f"{alert.name} after {alert.first / 3600:.1f} h: {alert.where}"
