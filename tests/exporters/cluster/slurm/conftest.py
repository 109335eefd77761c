"""A collector over a Slurm made of two scripts."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pyrometer_exporters.cluster.slurm.collector import COLLECTOR, SlurmCollector
from pyrometer_exporters.framework.clock import SystemClock
from pyrometer_exporters.framework.collector import Context
from pyrometer_exporters.framework.flags import Flags
from pyrometer_exporters.framework.metrics import Down, Sample
from pyrometer_simulator.slurm import FakeSlurm


class Scraped:
    """One scrape: values by family name and labels, downs by part."""

    def __init__(self, found: list[Sample | Down]) -> None:
        self.samples = [item for item in found if isinstance(item, Sample)]
        self.values = {(item.family.name, *item.labels): item.value for item in self.samples}
        self.downs = {item.part: item.reason for item in found if isinstance(item, Down)}
        self.details = {item.part: item.detail for item in found if isinstance(item, Down)}


def context_of(*argv: str) -> Context:
    parser = Flags("test", "")
    COLLECTOR.add_flags(parser)
    flags: argparse.Namespace = parser.parse_args(argv)
    return Context(flags, SystemClock(), Path(), Path(), Path(), None)


class Cluster:
    def __init__(self, folder: Path) -> None:
        self.slurm = FakeSlurm(folder / "bin")
        self.collector: SlurmCollector | None = None

    def start(self, *argv: str) -> None:
        commands = (f"--collector.slurm.squeue={self.slurm.squeue}", f"--collector.slurm.sinfo={self.slurm.sinfo}")
        pace = ("--collector.slurm.interval=1", "--collector.slurm.timeout=1")
        self.collector = SlurmCollector(context_of(*commands, *pace, *argv))

    def scrape(self) -> Scraped:
        assert self.collector is not None
        return Scraped(list(self.collector.collect(time.monotonic() + 4)))

    def until(self, met: Callable[[Scraped], bool]) -> Scraped:
        end = time.monotonic() + 8
        while not met(found := self.scrape()):
            assert time.monotonic() < end, (found.values, found.downs)
            time.sleep(0.05)
        return found


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    if made.collector is not None:
        made.collector.close()
