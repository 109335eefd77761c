"""Who waits in which collective of which group, for whom: the operations of all ranks, joined.

A group is its name *and* its members: older PyTorch gives disjoint groups one name. In a group, what counts is the
**first unfinished** collective of each rank: launches run ahead of the GPU, so the last one says how far a rank's
program is, and the first unfinished one what it waits in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from pyrometer.hang.records import Collective, Dump, Part

SHORT_SECONDS = 10.0
"""Ranks of a run that goes on wait for each other, too, but seldom for as long as this."""
# Only the root has outputs of one, and inputs of the other; each rank has its own sizes in those after them.
_ROOTED = frozenset({"gather", "scatter"})
_UNEVEN = frozenset({"all_to_all", "all_to_all_single", "all_to_all_v_single", "all_gather_v", "reduce_scatter_v"})


@dataclass(frozen=True)
class Wait:
    """Ranks of a group that are in one collective and not through with it.

    Attributes:
        group: the group's name.
        collective: what they are in, as the rank that came last made it.
        waiting: the ranks for which it is the first unfinished one of the group.
        missing: those that have launched fewer, by their dumps.
        others: those that made another operation of the same number, and what it is.
        unsure: those of the missing and the absent that were seen too early, and how long after the last of the others
            had come.
        absent: those that left no dump.
        lost: those of which it can't be told: their dump doesn't reach back, or numbers differ by batches of sends.
        through: those that have finished it.
        members: all ranks of the group, as far as known.
        idle: those of the waiting that launched it but whose GPU has not begun it, while others' have.
        undecided: operations that differ where no side is the odd one, and who made them.
        waited: seconds from when the last of the waiting came to the last of their dumps; 0 where not known.
    """

    group: str
    collective: Collective
    waiting: tuple[int, ...]
    missing: tuple[int, ...]
    others: tuple[tuple[int, str], ...]
    unsure: tuple[tuple[int, float], ...] = ()
    absent: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()
    through: tuple[int, ...] = ()
    members: frozenset[int] = frozenset()
    idle: tuple[int, ...] = ()
    undecided: tuple[tuple[int, str], ...] = ()
    waited: float = 0.0

    @property
    def complete(self) -> bool:
        """Return whether every rank of the group came to it, and made the same."""
        return not (self.missing or self.absent or self.lost or self.others or self.undecided)

    @property
    def awaited(self) -> frozenset[int]:
        """Return the ranks that the others wait for here, without those that may have come since."""
        return frozenset(self.missing + self.absent).difference(dict(self.unsure)).union(dict(self.others), self.idle)


@dataclass
class Group:
    """Hold the ranks that belong to a process group, as dumps report them."""

    name: str
    members: set[int] = field(default_factory=set)


def groups_of(by_rank: Mapping[int, Dump]) -> list[Group]:
    """Return the groups of a job; one name may have several, if its members are told."""
    told: dict[str, dict[frozenset[int], Group]] = {}
    loners: dict[str, set[int]] = {}
    for rank, dump in by_rank.items():
        for name in dump.latest.keys() | dump.members.keys() | {transfer.group for transfer in dump.transfers}:
            members = dump.members.get(name, frozenset())
            if rank in members:
                told.setdefault(name, {}).setdefault(members, Group(name, set(members)))
            elif name in dump.latest:
                loners.setdefault(name, set()).add(rank)
    for name, ranks in loners.items():
        groups = told.setdefault(name, {})
        for rank in ranks:
            fitting = [group for members, group in groups.items() if rank in members] or list(groups.values())
            if len(fitting) == 1:
                fitting[0].members.add(rank)
            else:
                groups.setdefault(frozenset(), Group(name)).members.add(rank)
    return sorted(
        (group for groups in told.values() for group in groups.values()),
        key=lambda group: (group.name, min(group.members)),
    )


def waits_of(by_rank: Mapping[int, Dump]) -> list[Wait]:
    """Return who is in which unfinished collective, by group and number."""
    return [wait for group in groups_of(by_rank) for wait in _in_group(group, by_rank)]


def unsure_of(missing: Iterable[int], came: float, seen: float, by_rank: Mapping[int, Dump], short: float) -> Iterator[
    tuple[int, float]
]:  # fmt: skip
    """Yield the missing ranks that were seen too early, and how long after the last of the others had come.

    The others' dumps decide about a rank that wrote no dump, or none when they did.
    """
    for rank in missing if came and seen else ():
        written = by_rank[rank].written if rank in by_rank else 0.0
        at = written if seen - written < SHORT_SECONDS else seen
        if at - came < short:
            yield rank, at - came


def _in_group(group: Group, by_rank: Mapping[int, Dump]) -> Iterator[Wait]:
    dumps = {rank: by_rank[rank] for rank in sorted(group.members) if rank in by_rank}
    standing: dict[int, dict[int, Collective]] = {}
    for rank, dump in dumps.items():
        if group.name in dump.open:
            standing.setdefault(dump.open[group.name].sequence, {})[rank] = dump.open[group.name]
    for number in sorted(standing):
        yield _wait(group, number, standing[number], dumps, by_rank)


def _wait(
    group: Group,
    number: int,
    standing: Mapping[int, Collective],
    dumps: Mapping[int, Dump],
    by_rank: Mapping[int, Dump],
) -> Wait:
    last_came = max(collective.began for collective in standing.values())
    launched = {rank: dump.latest[group.name].sequence for rank, dump in dumps.items() if group.name in dump.latest}
    lost = {rank for rank, dump in dumps.items() if rank not in launched and dump.reaches_back > last_came}
    if any(group.name in dump.batched for dump in dumps.values()):
        # PyTorch numbers a batch of sends and receives as a collective, on the ranks that take part alone.
        lost.update(rank for rank in dumps if launched.get(rank, -1) < number)
    missing = tuple(rank for rank in dumps if launched.get(rank, -1) < number and rank not in lost)
    absent = tuple(sorted(group.members - dumps.keys()))
    through = tuple(
        rank
        for rank in dumps
        if launched.get(rank, -1) >= number and rank not in standing and _first_open(dumps[rank], group.name) > number
    )
    made = {
        rank: collective
        for rank, dump in dumps.items()
        if (collective := dump.recent.get(group.name, {}).get(number)) is not None and collective.name
    }
    others, undecided = _unlike(made)
    usual = [collective for rank, collective in standing.items() if rank not in dict(others)] or [*standing.values()]
    started = {rank for rank, collective in standing.items() if collective.started}
    idle = () if not started or through else tuple(
        rank for rank in standing if rank not in started and _is_first(by_rank[rank], standing[rank])
    )  # fmt: skip
    last_seen = max(by_rank[rank].written for rank in standing)
    short = min([SHORT_SECONDS, *(0.9 * each.timeout for each in standing.values() if each.timeout > 0)])
    return Wait(
        group.name,
        max(usual, key=lambda collective: (bool(collective.name), collective.began)),
        tuple(standing),
        missing,
        others,
        tuple(unsure_of((*missing, *absent), last_came, last_seen, by_rank, short)),
        absent,
        tuple(sorted(lost)),
        through,
        frozenset(group.members),
        idle if not missing and not absent else (),
        undecided,
        max(0.0, last_seen - last_came) if last_came else 0.0,
    )


def _first_open(dump: Dump, group: str) -> float:
    return dump.open[group].sequence if group in dump.open else float("inf")


def _is_first(dump: Dump, collective: Collective) -> bool:
    """Return whether this is the first of all that a rank has not finished: it is queued behind nothing else."""
    unfinished = [*dump.open.values()]
    return all(collective.order <= other.order for other in unfinished)


_Alike = tuple[tuple[int, str], ...]


def _unlike(made: Mapping[int, Collective]) -> tuple[_Alike, _Alike]:
    """Return the ranks whose operation is unlike the others', and what it is; and those that differ evenly."""
    views: tuple[tuple[Callable[[Collective], object], Callable[[Collective], str]], ...] = (
        (lambda one: one.name, lambda one: one.name),
        (lambda one: tuple(map(_comparable, one.parts)), _sizes),
    )
    for view, text in views:
        seen = {rank: view(one) for rank, one in made.items() if view is views[0][0] or one.parts}
        counts = Counter(seen.values()).most_common(2)
        if len(counts) < 2:
            continue
        (usual, most), (_, next_most) = counts
        differing = tuple((rank, text(made[rank])) for rank in sorted(seen) if seen[rank] != usual)
        if most > next_most:
            return differing, ()
        return (), tuple((rank, text(made[rank])) for rank in sorted(seen))
    return (), ()


def _comparable(part: Part) -> object:
    """Return what must be the same on all ranks."""
    if part.name in _ROOTED:
        return part.name
    sizes = () if part.name in _UNEVEN else (part.inputs, part.outputs)
    return part.name, *sizes, part.types


def _sizes(collective: Collective) -> str:
    """Return ``nccl:all_reduce of 4,096 to 4,096 elements (Float Float)``."""
    part = collective.parts[0]
    types = " ".join(part.types.translate(str.maketrans("[]',", "    ")).split())
    parts = f" and {len(collective.parts) - 1} more" if len(collective.parts) > 1 else ""
    return f"{collective.name} of {part.inputs:,} to {part.outputs:,} elements ({types}){parts}"
