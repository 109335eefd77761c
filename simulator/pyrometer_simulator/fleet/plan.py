"""What the cluster is, and what is wrong in it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

# Counters began here: any fixed moment before the history that is written.
EPOCH = 1_700_000_000.0
CLUSTER = "atlas"
MODEL = "NVIDIA H100 80GB HBM3"
DRIVER = "580.82.07"
REASONS = ("gpu_idle", "power_cap", "hw_thermal", "sw_thermal", "hw_power_brake", "hw_slowdown", "sync_boost")
PARTS = {"data": 0.02, "forward": 0.27, "backward": 0.52, "optimizer": 0.07, "wait": 0.06, "gc": 0.005}
# How much longer a step takes while all wait for one rank.
DROP = 1.28


@dataclass(frozen=True)
class Faults:
    """Planted faults, each with its culprit; an empty value is none of that kind.

    Attributes:
        hot: node and GPU throttled by heat.
        flapping: node and device whose link is lost for 15 s every two minutes.
        straggler: rank of the first run that all others wait for.
        dead: node whose exporter doesn't answer.
        lost: node and GPU that fell off the bus.
        lost_batch: every how many seconds one batch of the first run never arrives.
        memory: node and GPU with an uncorrected memory error.
        kernel: node whose kernel killed a process that ran out of memory.
        narrow: node and device whose link has half of its rate.
        pinned: node and device of which a counter stands at its maximum.
        stops: whether the run of the lost GPU stands still from then on, as a synchronous one does until it restarts.
        since: when they begin, in s since the epoch.
    """

    hot: tuple[str, int] | None = None
    flapping: tuple[str, int] | None = None
    straggler: int | None = None
    dead: str = ""
    lost: tuple[str, int] | None = None
    lost_batch: int = 0
    memory: tuple[str, int] | None = None
    kernel: str = ""
    narrow: tuple[str, int] | None = None
    pinned: tuple[str, int] | None = None
    stops: bool = False
    since: float = EPOCH


HEALTHY = Faults()


@dataclass(frozen=True)
class Run:
    """A training run on consecutive nodes.

    ``step`` is its step time in s; with ``line`` it is known from its log, which has a line for so many steps.
    """

    name: str
    first: int
    nodes: int
    step: float
    mfu: float
    line: int = 0


@dataclass(frozen=True)
class Plan:
    """A cluster: nodes gpu-001.. in racks of four, runs on the first of them, the last ones idle.

    ``named`` are the names of the last nodes, where they are no numbers. ``line``: the slow run is known from its log,
    which has a line for so many steps.
    """

    nodes: int = 511
    gpus: int = 8
    ports: int = 8
    cluster: str = CLUSTER
    named: tuple[str, ...] = ()
    faults: Faults = field(default_factory=Faults)
    line: int = 0

    def names(self) -> list[str]:
        """The nodes' names."""
        numbered = [f"gpu-{number:03d}" for number in range(1, self.nodes - len(self.named) + 1)]
        return [*numbered, *self.named]

    def rack(self, node: int) -> str:
        """The rack of the node at an index: four nodes in each."""
        return f"r{node // 4 + 1:03d}"

    def index(self, where: tuple[str, int] | None) -> tuple[int, int] | None:
        """A part by its node's place in ``names`` instead of its name."""
        return (self.names().index(where[0]), where[1]) if where else None

    @property
    def idle(self) -> int:
        """How many nodes at the end are idle: spares."""
        return self.nodes // 12

    def runs(self) -> list[Run]:
        """Two runs: four fifths of the busy nodes in fast steps, the others in slow ones."""
        busy = self.nodes - self.idle
        first = max(1, busy * 4 // 5)
        runs = [Run("llama3-70b", 0, first, 0.25, 0.41)]
        if busy > first:
            runs.append(Run("moe-1t", first, busy - first, 12.0, 0.33, self.line))
        return runs

    def rank(self, run: Run, where: tuple[str, int] | None) -> int | None:
        """The rank of a run on that GPU; nothing where there is none, or where it works for another."""
        found = self.index(where)
        if found is None or not run.first <= found[0] < run.first + run.nodes:
            return None
        return (found[0] - run.first) * self.gpus + found[1]

    def slowest(self, run: Run) -> int | None:
        """The rank that all others of the run wait for: the planted one, else the one on a GPU that is throttled."""
        if run.first == 0 and self.faults.straggler is not None:
            return self.faults.straggler
        return self.rank(run, self.faults.hot)

    def stopped(self, run: Run) -> float:
        """When the run stood still (s since the epoch): with its GPU, else never."""
        lost = self.faults.stops and self.rank(run, self.faults.lost) is not None
        return self.faults.since if lost else math.inf


def planted(nodes: int, since: float = EPOCH) -> Faults:
    """One fault of each kind, on different nodes, for a cluster of that many nodes (at least 6)."""
    at = [f"gpu-{math.ceil(nodes * share):03d}" for share in (0.082, 0.34, 0.587, 0.686)]
    return Faults(
        hot=(at[0], 3), flapping=(at[1], 5), straggler=77 if nodes > 12 else 9, dead=at[2], lost=(at[3], 6),
        lost_batch=600, memory=(at[1], 2), kernel=at[1], narrow=(at[3], 1), pinned=(at[0], 4), since=since,
    )  # fmt: skip


def alone(nodes: int, since: float = EPOCH) -> dict[str, Faults]:
    """Each fault that the boards are looked at with, alone, by a name for its cluster; and none at all."""
    whole = planted(nodes, since)
    found = {
        "throttled-gpu": replace(HEALTHY, hot=whole.hot),
        "flapping-rail": replace(HEALTHY, flapping=whole.flapping),
        "straggler": replace(HEALTHY, straggler=whole.straggler),
        "dead-exporter": replace(HEALTHY, dead=whole.dead),
        "lost-gpu": replace(HEALTHY, lost=whole.lost, stops=True),
        "lost-batch": replace(HEALTHY, lost_batch=whole.lost_batch),
    }
    return {"healthy": HEALTHY, **{name: replace(faults, since=since) for name, faults in found.items()}}
