"""A training job as NCCL sees it: ranks that launch collectives in the communicators of their parallel groups.

One step of each rank is a list of operations. A job runs until no rank can go on: healthy ranks wait where the real
ones would, in collectives, receives or the all-to-all of experts, and the counts are those that RAS would report.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from pyrometer_kit.collectives import Communicator

COLLECTIVES = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")
"""The kinds that RAS counts, in its order, in NCCL 2.24 to 2.30; sends and receives are not among them."""
Do = Literal["launch", "wait", "exchange", "send", "receive", "compute"]


class Op(NamedTuple):
    """An operation: a collective is launched, and waited for later or at once; an exchange isn't counted by RAS."""

    do: Do
    group: str = ""
    kind: str = "AllReduce"
    peer: int = -1


@dataclass(frozen=True)
class Layout:
    """The numbers of ranks that share a job's work in each way; the product is the number of ranks."""

    name: str
    tensor: int = 1
    context: int = 1
    expert: int = 1
    shard: int = 1
    pipeline: int = 1
    data: int = 1

    @property
    def ranks(self) -> int:
        """Return the number of ranks."""
        return self.tensor * self.context * self.expert * self.shard * self.pipeline * self.data

    def sizes(self) -> dict[str, int]:
        """Return the size of each dimension, the innermost first: neighbours in it are on one node."""
        names = ("tensor", "context", "expert", "shard", "pipeline", "data")
        return {name: getattr(self, name) for name in names}


def layouts(ranks: int) -> tuple[Layout, ...]:
    """Return the eight kinds of groups in which jobs of so many ranks (a multiple of 32) are trained."""
    return (
        Layout("data parallel", data=ranks),
        Layout("sharded", shard=ranks),
        Layout("sharded in a node, replicated", shard=8, data=ranks // 8),
        Layout("tensor and data parallel", tensor=8, data=ranks // 8),
        Layout("pipeline and data parallel", pipeline=4, data=ranks // 4),
        Layout("tensor, pipeline and data parallel", tensor=4, pipeline=4, data=ranks // 16),
        Layout("tensor, context and data parallel", tensor=4, context=2, data=ranks // 8),
        Layout("expert and data parallel", expert=8, data=ranks // 8),
    )


@dataclass
class Group:
    """A communicator: its members in the order of their ranks in it, and what each has launched there, by kind."""

    name: str
    members: tuple[int, ...]
    launched: dict[int, int] = field(default_factory=dict)
    kinds: dict[int, dict[str, int]] = field(default_factory=dict)
    arrived: dict[int, int] = field(default_factory=lambda: defaultdict(int))

    def launch(self, rank: int, kind: str) -> bool:
        """Count a collective of a rank; return whether it was the last one to arrive at it."""
        number = self.launched.get(rank, 0) + 1
        self.launched[rank] = number
        kinds = self.kinds.setdefault(rank, dict.fromkeys(COLLECTIVES, 0))
        kinds[kind] += 1
        self.arrived[number] += 1
        return self.arrived[number] == len(self.members)

    def complete(self, rank: int) -> bool:
        """Return whether the latest collective of a rank has ended."""
        number = self.launched.get(rank, 0)
        return number == 0 or self.arrived[number] == len(self.members)


class Job:
    """Ranks that train; each stops where a fault or another rank makes it stop."""

    def __init__(self, layout: Layout, layers: int = 2, microbatches: int = 2) -> None:
        self.layout = layout
        self.groups: dict[str, Group] = {}
        self._of: list[dict[str, Group]] = [{} for _ in range(layout.ranks)]
        self._make_groups()
        self.programs = [list(self._step(rank, layers, microbatches)) for rank in range(layout.ranks)]
        self._at = [0] * layout.ranks
        self._stops: dict[int, int] = {}
        self._sent: dict[tuple[int, int], int] = defaultdict(int)
        self._exchanged: dict[tuple[str, int], set[int]] = defaultdict(set)
        self._exchanges: dict[tuple[int, str], int] = defaultdict(int)
        self._waiting: dict[object, list[int]] = defaultdict(list)

    def stop(self, rank: int, at: int) -> None:
        """Let a rank do nothing any more from its operation ``at`` on, counted over all steps."""
        self._stops[rank] = at

    def resume(self) -> None:
        """Let all ranks that have stopped go on."""
        self._stops.clear()

    def run(self, steps: int = 1) -> None:
        """Train until each rank has made so many more steps, or waits for one that has stopped."""
        ends = [at + steps * len(program) for at, program in zip(self._at, self.programs, strict=True)]
        left = deque(range(self.layout.ranks))
        self._waiting.clear()
        while left:
            rank = left.popleft()
            while self._at[rank] < min(ends[rank], self._stops.get(rank, ends[rank])):
                awaited = self._do(rank, self.programs[rank][self._at[rank] % len(self.programs[rank])], left)
                if awaited is not None:
                    self._waiting[awaited].append(rank)
                    break
                self._at[rank] += 1

    def steps(self, rank: int) -> int:
        """Return the number of steps that a rank has finished."""
        return self._at[rank] // len(self.programs[rank])

    def has_stopped(self, rank: int) -> bool:
        """Return whether the rank came to where it was told to stop."""
        return rank in self._stops and self._at[rank] >= self._stops[rank]

    def waits(self, rank: int) -> bool:
        """Return whether the rank is in an operation that needs others, rather than at work or stopped."""
        if self._at[rank] >= self._stops.get(rank, self._at[rank] + 1):
            return False
        return self.programs[rank][self._at[rank] % len(self.programs[rank])].do != "compute"

    def counts(self) -> dict[str, dict[int, int]]:
        """Return the collectives launched so far, by communicator and rank."""
        return {
            name: {rank: group.launched.get(rank, 0) for rank in group.members} for name, group in self.groups.items()
        }

    def communicators(self, dead: Collection[int], before: Mapping[str, Mapping[int, int]]) -> list[Communicator]:
        """Return the communicators as RAS reports them: of dead ranks the counts of ``before`` are the last known."""
        return [
            Communicator(
                name,
                {rank: count for rank, count in counts.items() if rank not in dead},
                {rank: "dead" for rank in counts if rank in dead},
                {rank: before[name][rank] for rank in counts if rank in dead},
            )
            for name, counts in self.counts().items()
        ]

    def _do(self, rank: int, op: Op, left: deque[int]) -> object | None:
        """Do an operation of a rank; return what it has to wait for, None if it is done."""
        if op.do == "launch":
            group = self._of[rank][op.group]
            if group.launch(rank, op.kind):
                left.extend(self._waiting.pop(group.name, ()))
        elif op.do == "wait":
            group = self._of[rank][op.group]
            return None if group.complete(rank) else group.name
        elif op.do == "exchange":
            return self._exchange(rank, op.group, left)
        elif op.do == "send":
            self._sent[rank, op.peer] += 1
            left.extend(self._waiting.pop((rank, op.peer), ()))
        elif op.do == "receive":
            if not self._sent[op.peer, rank]:
                return op.peer, rank
            self._sent[op.peer, rank] -= 1
        return None

    def _exchange(self, rank: int, dimension: str, left: deque[int]) -> object | None:
        group = self._of[rank][dimension]
        key = group.name, self._exchanges[rank, dimension]
        self._exchanged[key].add(rank)
        if len(self._exchanged[key]) < len(group.members):
            return key
        self._exchanges[rank, dimension] += 1
        left.extend(self._waiting.pop(key, ()))
        return None

    def _make_groups(self) -> None:
        everyone = tuple(range(self.layout.ranks))
        self._join("world", "world", everyone)
        stride = 1
        for dimension, size in self.layout.sizes().items():
            if size > 1:
                firsts = (rank for rank in everyone if rank // stride % size == 0)
                for number, first in enumerate(firsts):
                    members = tuple(first + stride * index for index in range(size))
                    self._join(f"{dimension}-{number}", dimension, members)
            stride *= size

    def _join(self, name: str, dimension: str, members: tuple[int, ...]) -> None:
        group = self.groups[name] = Group(name, members)
        for rank in members:
            self._of[rank][dimension] = group

    def _step(self, rank: int, layers: int, microbatches: int) -> Iterator[Op]:
        """Yield the operations of one step: forward and backward of each microbatch, then what follows."""
        yield Op("compute")
        for _ in range(microbatches):
            yield from self._pipeline(rank, forward=True)
            for _ in range(layers):
                yield from self._layer(rank)
            yield from self._pipeline(rank, forward=False)
        if "data" in self._of[rank]:
            for _ in range(layers):  # buckets: launched while backward goes on, waited for at its end
                yield from (Op("compute"), Op("launch", "data"))
            yield Op("wait", "data")
        yield from (Op("launch", "world"), Op("wait", "world"))  # the norm of the gradient

    def _layer(self, rank: int) -> Iterator[Op]:
        own = self._of[rank]
        if "shard" in own:
            yield from (Op("launch", "shard", "AllGather"), Op("wait", "shard"))
        yield Op("compute")
        for dimension, kind in (("tensor", "AllReduce"), ("context", "AllGather")):
            if dimension in own:
                yield from (Op("launch", dimension, kind), Op("wait", dimension), Op("compute"))
        if "expert" in own:
            yield from (Op("exchange", "expert"), Op("compute"))
        if "shard" in own:
            yield from (Op("launch", "shard", "ReduceScatter"), Op("wait", "shard"))

    def _pipeline(self, rank: int, *, forward: bool) -> Iterator[Op]:
        """Yield the receive before a stage's forward, or all that passes between stages after it."""
        group = self._of[rank].get("pipeline")
        if group is None:
            return
        place = group.members.index(rank)
        before = group.members[place - 1] if place > 0 else None
        after = group.members[place + 1] if place + 1 < len(group.members) else None
        if forward:
            if before is not None:
                yield Op("receive", peer=before)
            return
        if after is not None:
            yield from (Op("send", peer=after), Op("receive", peer=after))
        yield Op("compute")
        if before is not None:
            yield Op("send", peer=before)
