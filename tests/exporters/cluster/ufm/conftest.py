"""The collector over a log and a canned Prometheus."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timezone
from pathlib import Path
from typing import Any

import pytest

from pyrometer_exporters.cluster.main import CLUSTER_EXPORTER
from pyrometer_exporters.cluster.ufm import collector as module
from pyrometer_exporters.cluster.ufm.collector import COLLECTOR, UfmCollector
from pyrometer_exporters.framework.collector import Context
from pyrometer_kit.flags import Flags
from pyrometer_kit.prometheus import Series
from pyrometer_simulator.ufm import UfmLog


def nic(node: str, device: str, guid: str = "", port: str = "1") -> Series:
    return Series({"node": node, "device": device, "port": port, "guid": guid}, ((1.0, 1.0),))


class Fabric:
    """A log, what the nodes report, and a collector that can be started again."""

    def __init__(self, folder: Path, clock: Any, prometheus: Any, scraped: Callable[[Any], Any]) -> None:
        self.clock, self.prometheus, self._scraped = clock, prometheus, scraped
        self.log = UfmLog(folder / "log/event.log", wall=clock.wall, zone=timezone.utc)
        self.state: Path | None = folder / "state"
        self.state.mkdir()
        self.collector: UfmCollector | None = None

    def nodes(self, *series: Series) -> None:
        self.prometheus.answers = {"pyrometer_nic_info": list(series)}

    def start(self, *argv: str) -> None:
        self.stop()
        parser = Flags("test", "")
        CLUSTER_EXPORTER.add_flags(parser)
        COLLECTOR.add_flags(parser)
        flags = parser.parse_args([f"--collector.ufm.event-log={self.log.path}", "--collector.ufm.timezone=UTC", *argv])
        context = Context(flags, self.clock, Path(), Path(), Path(), self.state)
        self.collector = UfmCollector(context, self.prometheus)

    def stop(self) -> None:
        if self.collector is not None:
            self.collector.close()

    def scrape(self) -> Any:
        assert self.collector is not None
        return self._scraped(list(self.collector.collect(time.monotonic() + 4)))

    def until(self, met: Callable[[Any], bool]) -> Any:
        end = time.monotonic() + 5
        while not met(found := self.scrape()):
            assert time.monotonic() < end, (found.values, found.downs)
            time.sleep(0.01)
        return found


@pytest.fixture
def fabric(
    tmp_path: Path, clock: Any, prometheus: Any, scraped: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Fabric]:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(module, "PORTS_SECONDS", 0.05)
    made = Fabric(tmp_path, clock, prometheus, scraped)
    yield made
    made.stop()


@pytest.fixture(name="nic")
def nic_fixture() -> Callable[..., Series]:
    return nic
