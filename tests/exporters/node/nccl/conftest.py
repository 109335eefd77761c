"""A node with an address of its own, its rings and processes, and a clock that does what it is told."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from pyrometer_exporters.framework.collector import Context
from pyrometer_exporters.framework.metrics import Down, Sample
from pyrometer_exporters.node.nccl.asker import Probe, Turns
from pyrometer_exporters.node.nccl.collector import LocalNode, Watch
from pyrometer_kit.flags import Address

FIB_TRIE = """Main:
  +-- 0.0.0.0/0 3 0 5
     +-- 10.0.0.0/24 2 0 2
        |-- {address}
           /32 host LOCAL
        |-- 10.0.0.255
           /32 link BROADCAST
     +-- 127.0.0.0/8 2 0 2
        |-- 127.0.0.1
           /32 host LOCAL
"""


class Clock:
    """Moves by :meth:`advance` only."""

    def __init__(self) -> None:
        self.now = 1000.0

    def wall(self) -> float:
        return self.now + 1_790_000_000.0

    def monotonic(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


class Host:
    """A node of the cluster, as the collector finds it."""

    def __init__(self, folder: Path, address: str = "10.0.0.1") -> None:
        self.clock = Clock()
        self.procfs, self.rings = folder / "proc", folder / "rings"
        (self.procfs / "net").mkdir(parents=True)
        (self.procfs / "net/fib_trie").write_text(FIB_TRIE.format(address=address))
        self.context = Context(argparse.Namespace(), self.clock, folder, self.procfs, self.rings, None)

    def run_process(self, pid: int, cgroup: str) -> None:
        """Let a process exist."""
        (self.procfs / str(pid)).mkdir()
        (self.procfs / str(pid) / "cgroup").write_text(cgroup)

    def watch(self, where: tuple[str, int], probe: Probe | None = None, seconds: float = 20.0) -> Watch:
        """Watch an address."""
        node = LocalNode(self.context)
        return Watch(Address(*where), node, Turns(node, probe), self.context, seconds)

    def look(self, watch: Watch, seconds: float = 60.0) -> None:
        """Let so much time pass."""
        for _ in range(int(seconds / 2)):
            self.clock.advance(2)
            watch.tick()

    @staticmethod
    def values(found: list[Sample | Down], name: str) -> dict[tuple[str, ...], float]:
        """Return the values of a family by its labels."""
        return {one.labels: one.value for one in found if isinstance(one, Sample) and one.family.name == name}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)
