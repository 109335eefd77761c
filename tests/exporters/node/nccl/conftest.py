"""A node with an address of its own, its rings and processes, and a clock that does what it is told."""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyrometer import ring
from pyrometer_exporters.framework.collector import Context
from pyrometer_exporters.framework.metrics import Down, Sample
from pyrometer_exporters.node.nccl.asker import Probe, Turns
from pyrometer_exporters.node.nccl.collector import Watch
from pyrometer_exporters.node.nccl.local_node import LocalNode
from pyrometer_kit.flags import Address

TEXTS = (
    "model", "convention", "dtype", "gpu_model", "recompute", "job_id", "gpu", "uuid", "stage", "replica",
    "global_batch_size", "micro_batch_size", "sequence_length",
)  # fmt: skip
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
        self.files: list[int] = []
        self.procfs, self.rings = folder / "proc", folder / "rings"
        (self.procfs / "net").mkdir(parents=True)
        self.move_to(address)
        self.context = Context(argparse.Namespace(), self.clock, folder, self.procfs, self.rings, None)

    def run_process(self, pid: int, cgroup: str) -> None:
        """Let a process exist."""
        (self.procfs / str(pid)).mkdir()
        (self.procfs / str(pid) / "cgroup").write_text(cgroup)

    def move_to(self, address: str) -> None:
        """Give the node another address."""
        (self.procfs / "net/fib_trie").write_text(FIB_TRIE.format(address=address))

    def report_rank(self, pid: int, rank: int, run: str = "run") -> None:
        """Let a rank of this node report through the client."""
        meta = {
            "run": run, "attempt": 0, "rank": rank, "local_rank": rank, "world_size": 32, "reporting": rank == 0,
            "first_step": 1, "warmup_steps": 0, "tokens_per_step": None, "flops_per_token": None, "peak_flops": None,
            **dict.fromkeys(TEXTS),
        }  # fmt: skip
        self.rings.mkdir(exist_ok=True)
        data = json.dumps(meta).encode()
        ring_file = os.open(self.rings / f"{pid}{ring.SUFFIX}", os.O_RDWR | os.O_CREAT)
        os.ftruncate(ring_file, ring.HEADER_BYTES + ring.CAPACITY * 8 * ring.RECORD_SLOTS)
        os.pwrite(ring_file, struct.pack("<4q", ring.MAGIC, 1, pid, len(data)), 0)
        os.pwrite(ring_file, data, ring.META_OFFSET)
        fcntl.flock(ring_file, fcntl.LOCK_EX)
        self.files.append(ring_file)

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
def host(tmp_path: Path) -> Iterator[Host]:
    found = Host(tmp_path)
    yield found
    for file in found.files:
        os.close(file)
