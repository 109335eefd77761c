"""Who is to blame: the ranks that others wait for and that wait for nobody.

Edges of the graph are certain where a rank has not come to a collective in which another waits. A send or receive
whose other end has not come to it is an edge as well, but a weak one: a pipeline always has some in flight, posted long
before they are due, so waiting in one alone clears nobody. Where weak edges close a circle, certain ones decide.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyrometer.hang.records import Dump, Transfer
from pyrometer.hang.waits import SHORT_SECONDS, Group, Wait, groups_of, unsure_of, waits_of

APART_SECONDS = 0.05
"""In a circle, a rank that launched its last operation so long before the others stopped first; clocks differ less."""


@dataclass(frozen=True)
class Meeting:
    """A send or receive that a rank has not finished.

    Attributes:
        rank: who is in it.
        peer: the other rank, None where that is not known.
        came: whether the other end came to it, None where that can't be told.
    """

    rank: int
    peer: int | None
    came: bool | None
    transfer: Transfer


@dataclass(frozen=True)
class Hang:
    """Who waits for whom, and who is to blame.

    Attributes:
        waits: who is in which unfinished collective.
        meetings: who is in which unfinished send or receive.
        named: the ranks to blame.
        sure: whether no other rank could be.
        circle: ranks that wait for each other, where none of them can be told to be the first.
    """

    waits: tuple[Wait, ...]
    meetings: tuple[Meeting, ...]
    named: tuple[int, ...]
    sure: bool
    circle: tuple[int, ...]


def examine(dumps: Iterable[Dump]) -> Hang:
    """Return who waits for whom, and who is to blame."""
    by_rank = {dump.rank: dump for dump in dumps}
    waits = waits_of(by_rank)
    meetings = list(_meetings(by_rank, groups_of(by_rank)))
    certain, weak, held = _edges(waits, meetings, by_rank)
    named, sure, circle = _culprits(certain, weak, held, by_rank)
    return Hang(tuple(waits), tuple(meetings), tuple(sorted(named)), sure, tuple(sorted(circle)))


_Edges = dict[int, set[int]]


def _edges(
    waits: Sequence[Wait], meetings: Sequence[Meeting], by_rank: Mapping[int, Dump]
) -> tuple[_Edges, _Edges, set[int]]:
    """Return who waits for whom for certain and maybe, and who waits for ranks that may have come since."""
    certain: _Edges = {}
    weak: _Edges = {}
    held: set[int] = set()
    for wait in waits:
        unlike = dict(wait.others).keys() | set(wait.idle)
        for rank in wait.waiting:
            if rank not in unlike:
                certain.setdefault(rank, set()).update(wait.awaited)
        if wait.unsure:
            held.update(rank for rank in wait.waiting if rank not in unlike)
    for meeting in meetings:
        peer, made = meeting.peer, meeting.transfer.collective
        if peer is None:
            held.add(meeting.rank)
        elif not meeting.came:
            seen = by_rank[meeting.rank].written
            if meeting.came is None or list(unsure_of([peer], made.began, seen, by_rank, SHORT_SECONDS)):
                held.add(meeting.rank)
            else:
                weak.setdefault(meeting.rank, set()).add(peer)
    return {rank: awaited for rank, awaited in certain.items() if awaited}, weak, held


def _culprits(
    certain: _Edges, weak: _Edges, held: Collection[int], by_rank: Mapping[int, Dump]
) -> tuple[set[int], bool, set[int]]:
    """Return the ranks to blame, whether that is sure, and a circle of ranks that wait for each other."""
    edges = {rank: certain.get(rank, set()) | weak.get(rank, set()) for rank in certain.keys() | weak.keys()}
    awaited = set().union(*edges.values()) if edges else set()
    ends = awaited - edges.keys() - set(held)
    present = ends & by_rank.keys()
    if ends:
        # A rank without a dump may be one whose dump was not fetched: others that nothing holds up explain more.
        return present or ends, bool(present) or len(ends) == 1, set()
    circle = _circle(edges, held)
    if not circle:
        return set(), True, set()
    first = _first_of(circle, certain, weak, by_rank)
    return ({first}, False, circle) if first is not None else (set(), False, circle)


def _circle(edges: _Edges, held: Collection[int]) -> set[int]:
    """Return the smallest set of ranks that wait for each other and for no other."""
    best: set[int] = set()
    for rank in sorted(edges):
        reached = _reached(rank, edges)
        closed = rank in reached and all(rank in _reached(other, edges) for other in reached)
        if closed and reached.isdisjoint(held) and (not best or len(reached) < len(best)):
            best = reached
    return best


def _reached(rank: int, edges: Mapping[int, set[int]]) -> set[int]:
    seen: set[int] = set()
    left = [rank]
    while left:
        for other in edges.get(left.pop(), ()):
            if other not in seen:
                seen.add(other)
                left.append(other)
    return seen


def _first_of(circle: set[int], certain: _Edges, weak: _Edges, by_rank: Mapping[int, Dump]) -> int | None:
    """Return the rank of a circle that probably holds up the others.

    It has not come to a collective in which a third rank waits, and is itself in a send or receive alone; or the ranks
    outside wait for it alone; or it was the first to stop.
    """
    thirds = {
        rank
        for rank in circle - certain.keys()
        if any(rank in awaited and other not in weak.get(rank, ()) for other, awaited in certain.items())
    }
    outside = {
        rank
        for edges in (certain, weak)
        for other, awaited in edges.items()
        if other not in circle
        for rank in awaited & circle
    }
    for chosen in (thirds, outside):
        if len(chosen) == 1:
            return chosen.pop()
    if any(rank in certain for rank in circle):
        return None
    stopped = sorted((by_rank[rank].active, rank) for rank in circle if rank in by_rank and by_rank[rank].active)
    if len(stopped) == len(circle) and stopped[1][0] - stopped[0][0] >= APART_SECONDS:
        return stopped[0][1]
    return None


def _meetings(by_rank: Mapping[int, Dump], groups: Sequence[Group]) -> Iterator[Meeting]:
    of = {(group.name, rank): group for group in groups for rank in group.members}
    for rank, dump in sorted(by_rank.items()):
        for transfer in dump.transfers:
            if not transfer.collective.finished:
                group = of.get((transfer.group, rank))
                members = sorted(group.members) if group else []
                known = 0 <= transfer.peer < len(members)
                peer = members[transfer.peer] if known else None
                mine = members.index(rank) if known else -1
                came = _came(transfer, mine, by_rank.get(peer)) if peer is not None else None
                yield Meeting(rank, peer, came, transfer)


def _came(transfer: Transfer, mine: int, other: Dump | None) -> bool | None:
    """Return whether the other end of a transfer came to it, None where its dump doesn't reach back so far."""
    if other is None:
        return False
    ends = [
        end
        for end in other.transfers
        if end.group == transfer.group and end.sends != transfer.sends and end.peer == mine
    ]
    if any(not end.collective.finished or end.number == transfer.number > 0 for end in ends):
        return True
    return None if not ends and other.reaches_back > transfer.collective.began > 0 else False
