"""The operations of each rank of a hung job, whichever source they come from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Part(NamedTuple):
    """Name, sizes and types of an operation, alike on all ranks; a coalesced one has several.

    Attributes:
        name: ``all_reduce``, ``_all_gather_base``, ...
        inputs: elements of its inputs, all together; -1 where that is not known.
        outputs: elements of its outputs.
        types: its data types, as text.
    """

    name: str
    inputs: int = -1
    outputs: int = -1
    types: str = ""


@dataclass(frozen=True)
class Collective:
    """A collective of one rank in one group.

    Attributes:
        sequence: its number in the group, from 1.
        name: ``gloo:all_reduce``, ``nccl:broadcast``, ...; empty where it fell out of the recorder's buffer.
        finished: whether this rank is through with it.
        place: file, line and function in the job; empty where the dump has none.
        began: when this rank came to it, in Unix seconds; 0 where the dump doesn't say.
        timeout: after how many seconds PyTorch gives it up; 0 where the dump doesn't say.
        started: whether its kernel is known to run on the GPU.
        order: its place in the rank's own order of operations.
        parts: what the other ranks' must be like.
        ran: for how many seconds it had run when it was given up; 0 where that is not known.
    """

    sequence: int
    name: str
    finished: bool
    place: str
    began: float = 0.0
    timeout: float = 0.0
    started: bool = False
    order: int = 0
    parts: tuple[Part, ...] = ()
    ran: float = 0.0


@dataclass(frozen=True)
class Transfer:
    """A send or a receive of one rank.

    Attributes:
        group: the group's name.
        sends: whether it sends; else it receives.
        peer: the other's rank in the group, -1 where that is not known.
        number: its number in the group, of collectives and transfers together: a batch raises one or the other.
    """

    group: str
    sends: bool
    peer: int
    number: int
    collective: Collective


@dataclass
class Dump:
    """The operations of one rank.

    Attributes:
        rank: the global rank, from the file's name.
        latest: the last collective that it launched, by group.
        groups: descriptions of the groups it knows, by name.
        members: the global ranks of those groups whose members it knows.
        in_p2p: whether it is in a ``send`` or ``recv`` that has not finished.
        written: when the file was written, in Unix seconds; 0 where that is not known.
        open: its first unfinished collective, by group.
        recent: collectives that it has not finished and the last finished one, by group and number.
        transfers: the first unfinished send and receive with each peer, or else the last finished one.
        batched: groups whose numbers batches of sends and receives raise on the ranks that take part alone.
        reaches_back: since when its record is whole, in Unix seconds; 0 where nothing fell out of the buffer.
        active: when it last launched anything, in Unix seconds.
    """

    rank: int
    latest: dict[str, Collective] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)
    members: dict[str, frozenset[int]] = field(default_factory=dict)
    in_p2p: bool = False
    written: float = 0.0
    open: dict[str, Collective] = field(default_factory=dict)
    recent: dict[str, dict[int, Collective]] = field(default_factory=dict)
    transfers: list[Transfer] = field(default_factory=list)
    batched: set[str] = field(default_factory=set)
    reaches_back: float = 0.0
    active: float = 0.0
