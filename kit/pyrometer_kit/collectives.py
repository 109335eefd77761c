"""Find the ranks that a hung job waits for, from the number of collectives that each rank launched.

A collective ends when every rank of its communicator has launched it. Once no count rises any more, a rank that
launched more than the lowest in one communicator waits there for those with the lowest; a rank that is behind in one
communicator may wait in another, and then it is no culprit. The culprits are behind, or gone, and wait for no other
rank::

    tensor parallel    rank 0: 41   rank 1: 40      0 waits for 1
    data parallel      rank 0: 6    rank 2: 7       2 waits for 0
    culprit                                         1

Sends and receives are not counted by NCCL, so ranks of a pipeline that wait for each other all seem to wait for none:
then all of them are named, none as certain.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

NOT_READY = -1
"""The count of a rank whose communicator is still being set up."""
GONE = frozenset(("dead", "unresponsive"))
"""States of a rank whose process doesn't answer; ``missing`` means that it answers but is not in the communicator."""


@dataclass(frozen=True)
class Communicator:
    """The progress of one communicator's ranks; a rank is a number that is unique in the job.

    Attributes:
        launched: collectives launched so far, of all kinds together, or NOT_READY, by rank.
        absent: state (``dead``, ``unresponsive`` or ``missing``) of each rank that gave no count.
        last_launched: the last known count of absent ranks, where there is one.
    """

    name: str
    launched: Mapping[int, int]
    absent: Mapping[int, str] = field(default_factory=dict)
    last_launched: Mapping[int, int] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Return the number of ranks, absent ones included."""
        return len(self.launched) + len(self.absent)


class Suspect(NamedTuple):
    """A rank that others wait for while it waits for none.

    Attributes:
        state: ``behind``, ``not_ready``, ``dead``, ``unresponsive`` or ``missing``.
        certain: False where it could also be another rank.
        communicator: where others wait for the rank: of several, the innermost, in which even late ranks wait for it.
        launched: its count there, None where it isn't known.
        expected: the highest count there.
        waiting: the number of ranks there that wait.
    """

    rank: int
    state: str
    certain: bool
    communicator: str
    launched: int | None
    expected: int
    waiting: int


def culprits(communicators: Sequence[Communicator], waits: Mapping[int, bool] | None = None) -> list[Suspect]:
    """Return the ranks that a stalled job waits for, the certain ones first; none if no rank is behind or absent.

    Args:
        communicators: the counts at a time when they have stopped rising.
        waits: other evidence of single ranks, where there is any: True if a rank is seen waiting (its GPU spins in a
            collective, its training loop is in ``wait``), False if it is seen doing something else.
    """
    graph = _Graph(communicators)
    evidence = waits or {}
    explained = graph.waiting_for(graph.gone)
    suspects = [graph.suspect(rank, certain=True) for rank in sorted(graph.gone)]
    if graph.gone:  # it explains those that may wait for it, unless they are seen doing something else
        sinks = {rank for rank in graph.sinks if rank not in explained or evidence.get(rank) is False}
    else:
        sinks = {rank for rank in graph.sinks if not evidence.get(rank)} or graph.sinks
    seen: set[int] = set()
    for rank in sorted(sinks, key=lambda sink: (not graph.is_inner(sink), sink)):
        if rank not in seen:
            alike = _alike(graph, rank, sinks - seen)
            seen |= alike.cluster
            # A rank of another pipeline stage may hold up this one, and only other replicas wait for it.
            doubt = rank in graph.waiting_for(alike.cluster - alike.ranks)
            certain = len(alike.ranks) == 1 and not doubt and not graph.circular and not evidence.get(rank)
            suspects += [graph.suspect(peer, certain=certain) for peer in sorted(alike.ranks)]
    suspects += [graph.suspect(rank, certain=False) for rank in sorted(graph.circular - seen)]
    return sorted(_hedged(suspects), key=lambda suspect: not suspect.certain)


def _hedged(suspects: list[Suspect]) -> list[Suspect]:
    """Return the suspects without certainty where ranks have not joined several communicators.

    A rank that waits in a send or receive, or exchanges tokens with experts, before it joins its next communicator is
    missing there as well, and where it waits may not be listed yet.
    """
    apart = {suspect.communicator for suspect in suspects if suspect.state in ("missing", "not_ready")}
    if len(apart) <= 1:
        return suspects
    return [suspect._replace(certain=suspect.certain and suspect.state in GONE) for suspect in suspects]


class _Alike(NamedTuple):
    cluster: set[int]
    ranks: set[int]


def _alike(graph: _Graph, rank: int, sinks: set[int]) -> _Alike:
    """Return the sinks that may wait for a rank, and those of them with as much evidence as this rank."""
    cluster = (graph.waiting_for({rank}) & sinks) | {rank}
    inner = graph.is_inner(rank)
    return _Alike(cluster, {peer for peer in cluster if graph.is_inner(peer) == inner})


class _Graph:
    """Hold which ranks wait for which: those ahead in a communicator wait for those with its lowest count."""

    def __init__(self, communicators: Sequence[Communicator]) -> None:
        self._communicators = sorted(communicators, key=lambda communicator: (communicator.size, communicator.name))
        self._largest = max((communicator.size for communicator in communicators), default=0)
        self._places: dict[int, Communicator] = {}
        self._late: dict[str, set[int]] = {}
        self._ahead: dict[int, list[str]] = {}
        self._of: dict[int, list[Communicator]] = {}
        self.gone: set[int] = set()
        for communicator in self._communicators:
            self._add(communicator)
        self._held_up = {rank for ranks in self._late.values() for rank in ranks}
        self.sinks = self._held_up - self._ahead.keys() - self.gone
        self._inner = dict(self._inner_places())
        self.circular = set() if self.gone else self._in_circles()

    def is_inner(self, rank: int) -> bool:
        """Return whether ranks that are late themselves wait for it, rather than only those of other replicas."""
        return rank in self._inner

    def suspect(self, rank: int, *, certain: bool) -> Suspect:
        """Return the description of a rank that is behind or absent."""
        place = self._inner.get(rank) or self._places[rank]
        launched = place.launched.get(rank, place.last_launched.get(rank))
        expected = max(place.launched.values(), default=0)
        waiting = sum(count == expected for other, count in place.launched.items() if other != rank)
        state = place.absent.get(rank) or ("not_ready" if launched == NOT_READY else "behind")
        return Suspect(rank, state, certain, place.name, launched, expected, waiting)

    def waiting_for(self, ranks: Collection[int]) -> set[int]:
        """Return the ranks that wait for any of these, or may wait in a send or receive, which isn't counted."""
        seen, left, done = set(ranks), list(ranks), set()
        while left:
            rank = left.pop()
            for communicator in self._of.get(rank, ()):
                if communicator.name not in done and self._blocks(communicator, rank):
                    done.add(communicator.name)
                    late = self._late.get(communicator.name, ())
                    waiting = [other for other in communicator.launched if other not in late and other not in seen]
                    seen.update(waiting)
                    left.extend(waiting)
        return seen

    def _blocks(self, communicator: Communicator, rank: int) -> bool:
        """Return whether a rank that does nothing holds up others of a communicator."""
        late = self._late.get(communicator.name)
        if late is not None:
            return rank in late or rank in communicator.absent
        # All have the same count. They may exchange uncounted messages, but hardly all ranks of a job at once.
        return communicator.size < self._largest

    def _add(self, communicator: Communicator) -> None:
        launched = communicator.launched
        low, high = min(launched.values(), default=0), max(launched.values(), default=0)
        late = {rank for rank, count in launched.items() if count == low < high}
        if low == NOT_READY:  # the ranks that set it up wait for one that answers but has not joined yet
            late = {rank for rank, state in communicator.absent.items() if state not in GONE} or late
        lost = {rank for rank, state in communicator.absent.items() if state in GONE}
        self.gone |= lost
        for rank in (*launched, *communicator.absent):
            self._of.setdefault(rank, []).append(communicator)
        for rank in (*late, *lost):
            self._places.setdefault(rank, communicator)
        if late:
            self._late[communicator.name] = late
            for rank in launched.keys() - late:
                self._ahead.setdefault(rank, []).append(communicator.name)

    def _inner_places(self) -> Iterator[tuple[int, Communicator]]:
        """Yield the sinks that late ranks wait for, each with the smallest communicator in which they do."""
        for communicator in reversed(self._communicators):
            late = self._late.get(communicator.name, set())
            if any(rank in self._held_up for rank in communicator.launched if rank not in late):
                yield from ((rank, communicator) for rank in late & self.sinks)

    def _in_circles(self) -> set[int]:
        """Return late ranks that wait only for each other, as counts can suggest when launches run ahead of the GPU."""
        waits_in: dict[str, set[str]] = {}
        ends = {name for name, late in self._late.items() if not self.sinks.isdisjoint(late)}
        for name, late in self._late.items():
            for rank in late:
                for other in self._ahead.get(rank, ()):
                    waits_in.setdefault(other, set()).add(name)
        circles = self._late.keys() - _reachable(ends, waits_in)
        return {rank for name in circles for rank in self._late[name]}


def _reachable(starts: Collection[str], edges: Mapping[str, Collection[str]]) -> set[str]:
    seen, left = set(starts), list(starts)
    while left:
        for node in edges.get(left.pop(), ()):
            if node not in seen:
                seen.add(node)
                left.append(node)
    return seen


def standing(before: Mapping[str, Mapping[int, int]], now: Mapping[str, Mapping[int, int]]) -> Iterator[str]:
    """Yield the names of communicators in which no rank launched anything between two looks at them."""
    for name, counts in now.items():
        earlier = before.get(name)
        if earlier is not None and all(count <= earlier.get(rank, NOT_READY - 1) for rank, count in counts.items()):
            yield name
