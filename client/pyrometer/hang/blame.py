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
    """Hold who waits for whom in a job, and whom that blames.

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
    holds, held, adrift = _holds(waits, meetings, by_rank)
    named, sure, circle = _culprits(holds, held, adrift, by_rank)
    return Hang(tuple(waits), tuple(meetings), tuple(sorted(named)), sure, tuple(sorted(circle)))


@dataclass(frozen=True)
class _Hold:
    """Ranks that wait for others: the edges of the graph, bundled, as all of a group wait for the same."""

    waiting: frozenset[int]
    awaited: frozenset[int]
    certain: bool


def _holds(
    waits: Sequence[Wait], meetings: Sequence[Meeting], by_rank: Mapping[int, Dump]
) -> tuple[list[_Hold], set[int], set[int]]:
    """Return who waits for whom; for ranks that may have come since; and in a transfer whose other end isn't known."""
    held: set[int] = set()
    adrift: set[int] = set()
    holds: list[_Hold] = []
    for wait in waits:
        waiting = frozenset(wait.waiting).difference(dict(wait.others), wait.idle)
        if wait.awaited and waiting:
            holds.append(_Hold(waiting, wait.awaited, certain=True))
        if wait.unsure:
            held.update(waiting)
    for meeting in meetings:
        peer, made = meeting.peer, meeting.transfer.collective
        if meeting.came:
            continue
        seen = by_rank[meeting.rank].written
        if peer is None or meeting.came is None:
            adrift.add(meeting.rank)
        elif list(unsure_of([peer], made.began, seen, by_rank, SHORT_SECONDS)):
            held.add(meeting.rank)
        else:
            holds.append(_Hold(frozenset((meeting.rank,)), frozenset((peer,)), certain=False))
    return holds, held, adrift


def _culprits(
    holds: Sequence[_Hold], held: Collection[int], adrift: Collection[int], by_rank: Mapping[int, Dump]
) -> tuple[set[int], bool, set[int]]:
    """Return the ranks to blame, whether that is sure, and a circle of ranks that wait for each other."""
    awaited = {rank for hold in holds for rank in hold.awaited}
    waiting = {rank for hold in holds for rank in hold.waiting}
    maybe = awaited - waiting - set(held)
    ends = maybe - set(adrift)
    present = ends & by_rank.keys()
    if ends:
        # A rank without a dump may be one whose dump was not fetched: others that nothing holds up explain more.
        return present or ends, bool(present) or len(ends) == 1, set()
    several = {rank for hold in holds if hold.certain and hold.awaited & maybe for rank in hold.waiting}
    if len(maybe) == 1 and len(several) > 1:  # one alone may be the other end of the transfer
        return maybe, False, set()
    circles = [circle for circle in _circles(holds) if circle.isdisjoint(held) and circle.isdisjoint(adrift)]
    if not circles:
        return set(), True, set()
    circle = min(circles, key=lambda ranks: (len(ranks), min(ranks)))
    first = _first_of(circle, holds, by_rank)
    return ({first} if first is not None else set()), False, circle


def _circles(holds: Sequence[_Hold]) -> Iterator[set[int]]:
    """Yield the sets of ranks that all wait for each other and for no other rank."""
    after: dict[int, list[int]] = {}
    for index, hold in enumerate(holds):
        # A bundle is a node of its own, below 0: thousands that wait for thousands are no millions of edges.
        after[-1 - index] = sorted(hold.awaited)
        for rank in hold.waiting:
            after.setdefault(rank, []).append(-1 - index)
    for part in _strongly_connected(after):
        ranks = {node for node in part if node >= 0}
        if len(ranks) > 1 and all(other in part for node in part for other in after.get(node, ())):
            yield ranks


def _strongly_connected(after: Mapping[int, Sequence[int]]) -> Iterator[set[int]]:
    """Yield the strongly connected parts of a graph (Tarjan 1972), without recursion."""
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    path: list[int] = []
    on_path: set[int] = set()
    for start in after:
        todo = [(start, 0)] if start not in number else []
        while todo:
            node, step = todo.pop()
            if step == 0:
                number[node] = low[node] = len(number)
                path.append(node)
                on_path.add(node)
            following = after.get(node, ())
            if step and following[step - 1] in on_path:
                low[node] = min(low[node], low[following[step - 1]])
            while step < len(following) and following[step] in number:
                if following[step] in on_path:
                    low[node] = min(low[node], number[following[step]])
                step += 1
            if step < len(following):
                todo += [(node, step + 1), (following[step], 0)]
            elif low[node] == number[node]:
                part = set()
                while node not in part:
                    part.add(path.pop())
                on_path -= part
                yield part


def _first_of(circle: set[int], holds: Sequence[_Hold], by_rank: Mapping[int, Dump]) -> int | None:
    """Return the rank of a circle that probably holds up the others.

    It has not come to a collective in which a third rank waits, and is itself in a send or receive alone; or the ranks
    outside wait for it alone; or it was the first to stop.
    """
    peers = {(rank, peer) for hold in holds if not hold.certain for rank in hold.waiting for peer in hold.awaited}
    stuck = {rank for hold in holds if hold.certain for rank in hold.waiting & circle}
    thirds = {
        rank
        for hold in holds
        if hold.certain
        for rank in (hold.awaited & circle) - stuck
        if any((rank, other) not in peers for other in hold.waiting)
    }
    outside = {rank for hold in holds if hold.waiting - circle for rank in hold.awaited & circle}
    for chosen in (thirds, outside):
        if len(chosen) == 1:
            return chosen.pop()
    if stuck:
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
