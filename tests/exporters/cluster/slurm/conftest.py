"""A collector over a Slurm made of two scripts."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pyrometer_exporters.cluster.slurm.collector import COLLECTOR, SlurmCollector
from pyrometer_exporters.framework.collector import Context
from pyrometer_exporters.framework.metrics import Down, Sample
from pyrometer_kit.clock import SystemClock
from pyrometer_kit.flags import Flags
from pyrometer_simulator.slurm import FakeSlurm


def context_of(*argv: str) -> Context:
    parser = Flags("test", "")
    COLLECTOR.add_flags(parser)
    flags: argparse.Namespace = parser.parse_args(argv)
    return Context(flags, SystemClock(), Path(), Path(), Path(), None)


class Cluster:
    def __init__(self, folder: Path, scraped: Callable[[list[Sample | Down]], Any]) -> None:
        self._scraped = scraped
        self.slurm = FakeSlurm(folder / "bin")
        self.collector: SlurmCollector | None = None

    def start(self, *argv: str) -> None:
        commands = (f"--collector.slurm.squeue={self.slurm.squeue}", f"--collector.slurm.sinfo={self.slurm.sinfo}")
        pace = ("--collector.slurm.interval=1", "--collector.slurm.timeout=1")
        self.collector = SlurmCollector(context_of(*commands, *pace, *argv))

    def scrape(self) -> Any:
        assert self.collector is not None
        return self._scraped(list(self.collector.collect(time.monotonic() + 4)))

    def until(self, met: Callable[[Any], bool]) -> Any:
        end = time.monotonic() + 8
        while not met(found := self.scrape()):
            assert time.monotonic() < end, (found.values, found.downs)
            time.sleep(0.05)
        return found


@pytest.fixture
def cluster(tmp_path: Path, scraped: Any) -> Iterator[Cluster]:
    made = Cluster(tmp_path, scraped)
    yield made
    if made.collector is not None:
        made.collector.close()
