"""The description of a job, from the program that starts it to its ranks."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

RANKS_PER_NODE = 2
KINDS = ("ddp", "allreduce", "fsdp", "tensor", "huggingface", "lightning", "deepspeed", "torchtitan")


@dataclass(frozen=True)
class JobSpec:
    """A job of ``ranks`` processes, two on each node.

    Attributes:
        kind: Which loop trains: one of ``KINDS``.
        seed: Of the times that the steps take.
        step_seconds: Mean time that a rank computes in a step; each step's differs by ``jitter`` of it.
        slow_rank: The rank that computes for ``slowdown`` times as long; -1 for none.
        stuck_rank: The rank whose data loader stops for good at step ``stuck_at``; -1 for none.
        client: Whether the job reports through the client.
        dumps: Folder for the dumps of PyTorch's Flight Recorder when a collective takes too long; "" for none.
    """

    run: str
    kind: str = "ddp"
    seed: int = 0
    ranks: int = 4
    step_seconds: float = 1.0
    jitter: float = 0.03
    slow_rank: int = -1
    slowdown: float = 1.2
    stuck_rank: int = -1
    stuck_at: int = 15
    client: bool = True
    dumps: str = ""

    @property
    def nodes(self) -> int:
        """Return the number of nodes."""
        return -(-self.ranks // RANKS_PER_NODE)

    def pace(self, rank: int) -> Iterator[float]:
        """Yield the seconds that a rank computes in each step."""
        chance = random.Random(f"{self.seed} {rank}")
        mean = self.step_seconds * (self.slowdown if rank == self.slow_rank else 1.0)
        while True:
            yield mean * max(0.1, chance.gauss(1.0, self.jitter))


def node_name(index: int) -> str:
    """Return the name of a node, from its index."""
    return f"gpu-{index + 1:03d}"


def to_json(specs: Sequence[JobSpec]) -> str:
    """Return jobs as JSON."""
    return json.dumps([asdict(one) for one in specs])


def from_json(text: str) -> list[JobSpec]:
    """Return the jobs of :func:`to_json`."""
    return [JobSpec(**one) for one in json.loads(text)]
