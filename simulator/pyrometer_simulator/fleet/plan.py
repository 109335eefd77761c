"""The plan of a simulated cluster: its nodes and runs, and the faults planted in it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from pyrometer_simulator import vocabulary

# When counters started: any fixed time before the earliest history that is written.
EPOCH = 1_700_000_000.0
CLUSTER = "atlas"
REASONS = ("gpu_idle", "power_cap", "hw_thermal", "sw_thermal", "hw_power_brake", "hw_slowdown", "sync_boost")
PARTS = {"data": 0.02, "forward": 0.27, "backward": 0.52, "optimizer": 0.07, "wait": 0.06, "gc": 0.005}
# The factor on a step's time while all ranks wait for one.
DROP = 1.28


@dataclass(frozen=True)
class Faults:
    """Planted faults, each with its culprit; an empty value plants none of that kind.

    Attributes:
        hot: node and GPU throttled by heat.
        flapping: node and device whose link is lost for 15 s every two minutes.
        straggler: rank of the first run that all others wait for.
        dead: node whose exporter is down.
        lost: node and GPU that fell off the bus.
        lost_batch: interval in seconds at which a batch of the first run is lost.
        memory: node and GPU with an uncorrected memory error.
        kernel: node whose kernel killed a process that ran out of memory.
        narrow: node and device whose link has half of its rate.
        pinned: node and device with a saturated counter.
        maintained: node that its own file has in maintenance.
        stops: whether the run of the lost GPU stops from then on, as a synchronous run does until it restarts.
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
    maintained: str = ""
    stops: bool = False
    since: float = EPOCH


HEALTHY = Faults()


@dataclass(frozen=True)
class Run:
    """A training run on consecutive nodes.

    ``step`` is its step time in seconds. With ``line`` its log is followed, which has a line for this many steps.
    """

    name: str
    first: int
    nodes: int
    step: float
    mfu: float
    line: int = 0
    job: int = vocabulary.JOB

    @property
    def labels(self) -> str:
        """Return its name and job as labels."""
        return f'run="{self.name}",job_id="{self.job}"'


@dataclass(frozen=True)
class Plan:
    """A cluster: nodes gpu-001.. in racks of four, runs on the first of them, the last ones idle.

    ``named`` are names of the last nodes without a number. ``line``: the slow run's log is followed, which has a line
    for this many steps.
    """

    nodes: int = 511
    gpus: int = 8
    ports: int = 8
    cluster: str = CLUSTER
    named: tuple[str, ...] = ()
    faults: Faults = field(default_factory=Faults)
    line: int = 0

    def names(self) -> list[str]:
        """Return the nodes' names."""
        numbered = [f"gpu-{number:03d}" for number in range(1, self.nodes - len(self.named) + 1)]
        return [*numbered, *self.named]

    def rack(self, node: int) -> str:
        """Return the rack of the node at an index; a rack has four nodes."""
        return f"r{node // 4 + 1:03d}"

    def index(self, where: tuple[str, int] | None) -> tuple[int, int] | None:
        """Return (node, device) with the node's index in ``names`` in place of its name.

        Raises:
            ValueError: there is no such node.
        """
        return (self.names().index(where[0]), where[1]) if where else None

    @property
    def idle(self) -> int:
        """The number of idle nodes at the end: spares."""
        return self.nodes // 12

    def runs(self) -> list[Run]:
        """Return two runs: one with fast steps on four fifths of the busy nodes, one with slow steps on the others."""
        busy = self.nodes - self.idle
        first = max(1, busy * 4 // 5)
        runs = [Run("llama3-70b", 0, first, 0.25, 0.41)]
        if busy > first:
            runs.append(Run("moe-1t", first, busy - first, 12.0, 0.33, self.line, vocabulary.JOB + 1))
        return runs

    def rank(self, run: Run, where: tuple[str, int] | None) -> int | None:
        """Return the rank of a run on a GPU; None if the GPU does not work for this run."""
        position = self.index(where)
        if position is None or not run.first <= position[0] < run.first + run.nodes:
            return None
        return (position[0] - run.first) * self.gpus + position[1]

    def slowest(self, run: Run) -> int | None:
        """Return the rank that all others wait for: the planted straggler, else the one on a throttled GPU."""
        if run.first == 0 and self.faults.straggler is not None:
            return self.faults.straggler
        return self.rank(run, self.faults.hot)

    def stopped(self, run: Run) -> float:
        """Return when the run stops with its lost GPU (seconds since the epoch), else infinity."""
        lost = self.faults.stops and self.rank(run, self.faults.lost) is not None
        return self.faults.since if lost else math.inf


def planted(nodes: int, since: float = EPOCH) -> Faults:
    """Return one fault of each kind, on different nodes, for a cluster of at least 6 nodes."""
    at = [f"gpu-{math.ceil(nodes * share):03d}" for share in (0.082, 0.34, 0.587, 0.686)]
    return Faults(
        hot=(at[0], 3), flapping=(at[1], 5), straggler=77 if nodes > 12 else 9, dead=at[2], lost=(at[3], 6),
        lost_batch=600, memory=(at[1], 2), kernel=at[1], narrow=(at[3], 1), pinned=(at[0], 4),
        maintained=f"gpu-{nodes - 1:03d}", since=since,
    )  # fmt: skip


def single_faults(nodes: int, since: float = EPOCH) -> dict[str, Faults]:
    """Return each of the ten faults that boards are checked with, on its own, and none, by a name for its cluster."""
    whole = planted(nodes, since)
    singles = {
        "throttled-gpu": replace(HEALTHY, hot=whole.hot),
        "flapping-rail": replace(HEALTHY, flapping=whole.flapping),
        "straggler": replace(HEALTHY, straggler=whole.straggler),
        "dead-exporter": replace(HEALTHY, dead=whole.dead),
        "lost-gpu": replace(HEALTHY, lost=whole.lost, stops=True),
        "lost-batch": replace(HEALTHY, lost_batch=whole.lost_batch),
        "memory-error": replace(HEALTHY, memory=whole.memory),
        "out-of-memory": replace(HEALTHY, kernel=whole.kernel),
        "narrow-link": replace(HEALTHY, narrow=whole.narrow),
        "pinned-counter": replace(HEALTHY, pinned=whole.pinned),
    }
    return {"healthy": HEALTHY, **{name: replace(faults, since=since) for name, faults in singles.items()}}
