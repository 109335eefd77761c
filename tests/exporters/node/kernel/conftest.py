"""A kernel log as a file, and the kernel collector over it."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pyrometer_exporters.framework.collector import Context
from pyrometer_exporters.framework.metrics import Down, Sample
from pyrometer_exporters.node.kernel import follow
from pyrometer_exporters.node.kernel.collector import KernelCollector
from pyrometer_kit.clock import SystemClock
from pyrometer_simulator.kmsg import KernelLog


class Node:
    """The log, and a collector that can be started again."""

    def __init__(self, folder: Path) -> None:
        self.log = KernelLog(folder / "kmsg")
        self.state: Path | None = folder / "state"
        self.state.mkdir()
        self.procfs = folder / "proc"
        self.reboot("boot-1")
        self.collector: KernelCollector | None = None
        self.downs: dict[str, str] = {}
        self.flags = argparse.Namespace()
        self.looks = 0

    def reboot(self, boot: str) -> None:
        file = self.procfs / "sys/kernel/random/boot_id"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{boot}\n")

    def start(self) -> None:
        """Start the exporter, or start it again."""
        if self.collector is not None:
            self.collector.close()
        context = Context(self.flags, SystemClock(), Path(), self.procfs, Path(), self.state, kmsg=self.log.path)
        self.collector = KernelCollector(context)

    def scrape(self) -> dict[tuple[str, ...], float]:
        """Values by family name and labels; downs are in ``downs``."""
        if self.collector is None:
            self.start()
        assert self.collector is not None
        found = list(self.collector.collect(time.monotonic() + 4))
        self.downs = {item.part: item.reason for item in found if isinstance(item, Down)}
        return {(item.family.name, *item.labels): item.value for item in found if isinstance(item, Sample)}

    def kinds(self) -> dict[str, float]:
        """Events by kind, those that are not 0."""
        found = self.scrape()
        return {key[1]: value for key, value in found.items() if key[0] == "pyrometer_kernel_events_total" and value}

    def let_it_look(self) -> None:
        """Wait until the follower has read to the end, and found whether the file is another, once more."""
        wanted = self.looks + 2  # the look under way may be of before
        wait_until(lambda: self.looks >= wanted)

    def until(self, expected: dict[str, float]) -> None:
        """Scrape until the kinds are these."""
        wait_until(lambda: self.kinds() == expected)


def wait_until(met: Callable[[], bool], seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < end, "not met in time"
        time.sleep(0.005)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.setattr(follow, "LOOK_SECONDS", 0.005)
    monkeypatch.setattr(follow, "REOPEN_SECONDS", 0.02)
    made = Node(tmp_path)
    exchanged = follow.Follower._exchanged

    def counted(follower: follow.Follower, descriptor: int) -> bool:
        made.looks += 1
        return exchanged(follower, descriptor)

    monkeypatch.setattr(follow.Follower, "_exchanged", counted)
    yield made
    if made.collector is not None:
        made.collector.close()
