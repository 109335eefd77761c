"""One answer of NCCL RAS: the communicators of a job, their ranks, and what each rank has launched."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pyrometer_exporters.framework.outcome import PartError
from pyrometer_kit.collectives import NOT_READY

# A rank's entry has about 600 bytes and the answer at most 64 MB; short entries must not fill the memory.
MOST_RANKS = 262_144
READY, IN_PROGRESS = 0, 7


class Peer(NamedTuple):
    """A GPU of a process, which is a rank of several communicators; the address is the one that NCCL connects to."""

    host: str
    pid: int
    gpu: int


class Absent(NamedTuple):
    """A rank that gave no counts; ``state`` is dead, unresponsive or missing (it answers, but isn't a member)."""

    rank: int
    peer: int
    state: str


@dataclass
class Communicator:
    """A communicator; ``peers``, ``ranks`` and ``launched`` have an element for each rank that answered.

    Attributes:
        name: the hash that NCCL prints.
        launched: collectives of all kinds together, NOT_READY for a rank that is being initialised.
        bounds: lowest and highest count by kind.
        states: number of ranks by state, where it isn't told by the elements above.
        ending: True while a rank finalises or destroys it, or has been told to abort.
    """

    name: str
    size: int
    peers: array[int] = field(default_factory=lambda: array("i"))
    ranks: array[int] = field(default_factory=lambda: array("i"))
    launched: array[int] = field(default_factory=lambda: array("q"))
    bounds: dict[str, tuple[int, int]] = field(default_factory=dict)
    states: Counter[str] = field(default_factory=Counter)
    absent: list[Absent] = field(default_factory=list)
    ending: bool = False

    def add(self, rank: int, peer: int, state: str, counts: Mapping[str, int]) -> None:
        """Add a rank that answered."""
        self.ranks.append(rank)
        self.peers.append(peer)
        self.launched.append(NOT_READY if state == "initialising" else sum(counts.values()))
        self.states[state] += 1
        for kind, count in counts.items():
            low, high = self.bounds.get(kind, (count, count))
            self.bounds[kind] = min(low, count), max(high, count)

    def add_absent(self, rank: int, peer: int, state: str) -> None:
        """Add a rank that gave no counts."""
        self.absent.append(Absent(rank, peer, state))
        self.states[state] += 1


@dataclass
class Snapshot:
    """A job at one moment; ``nodes`` is the number of its nodes where the answer gives it.

    ``uid`` is the user who gave the answer, None where that can't be told.
    """

    version: str = ""
    form: str = "json"
    peers: list[Peer] = field(default_factory=list)
    communicators: list[Communicator] = field(default_factory=list)
    nodes: int = 0
    uid: int | None = None
    _numbers: dict[Peer, int] = field(default_factory=dict, repr=False)
    _entries: int = 0

    def number(self, peer: Peer) -> int:
        """Return the peer's index in ``peers``; a new peer is added.

        Raises:
            PartError: there are more entries than a real answer has.
        """
        self._entries += 1
        if self._entries > MOST_RANKS:
            raise PartError("too_large", f"more than {MOST_RANKS} ranks in one answer")
        index = self._numbers.get(peer)
        if index is None:
            index = self._numbers[peer] = len(self.peers)
            self.peers.append(peer)
        return index

    def largest(self) -> Communicator | None:
        """Return the largest communicator, the first by name of several; None where there is none."""
        whole = (comm for comm in self.communicators if comm.ranks)
        return min(whole, key=lambda comm: (-comm.size, comm.name), default=None)

    def hosts(self) -> list[str]:
        """Return the hosts of the largest communicator in the order of their lowest rank, those that answer."""
        largest = self.largest()
        if largest is None:
            return []
        ordered = sorted(zip(largest.ranks, largest.peers, strict=True))
        return list(dict.fromkeys(self.peers[peer].host for _, peer in ordered))

    def ranks_of_the_job(self) -> dict[int, int]:
        """Return the rank in the whole job by peer index; empty unless one communicator has all peers."""
        largest = self.largest()
        if largest is None or len(largest.ranks) + len(largest.absent) < len(self.peers):
            return {}
        ranks = dict(zip(largest.peers, largest.ranks, strict=True))
        ranks.update((absent.peer, absent.rank) for absent in largest.absent)
        return ranks if len(ranks) == len(self.peers) else {}


def state_of(init_state: int, async_error: int) -> str:
    """Return the state of a rank that answered, from NCCL's result codes."""
    if init_state == IN_PROGRESS:
        return "initialising"
    return "ready" if init_state == READY and async_error in (READY, IN_PROGRESS) else "error"
