"""Read the text report of NCCL RAS (2.24 to 2.28.3), which names only the ranks that differ from the others.

::

    #0-0 (27a079b828ff1a75) MISMATCH
      Communicator ranks have different AllReduce operation counts
      31 ranks have launched up to operation 6650
      Rank 21 has launched up to operation 6649 -- GPU 5 managed by process 483077 on node 172.16.64.210
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pyrometer_exporters.framework.outcome import PartError
from pyrometer_exporters.node.nccl.snapshot import MOST_RANKS, Communicator, Peer, Snapshot

_VERSION = re.compile(r"NCCL version (\S{1,64})")
_NODES = re.compile(r"^ *(\d{1,7})(?: +\d{1,9}){2,4} *$")
_GROUP = re.compile(
    r"^ *(\d{1,6}) +(\d{1,6}) +(\d{1,6}) +[\d-]{1,13} +(\d{1,7}) +\d{1,7} +([A-Z]{1,16}) +[A-Z,]{1,40} *$"
)
_BLOCK = re.compile(r"^(?:#(\d{1,6})-\d{1,6} \(([0-9a-f]{1,16})\) )?([A-Z]+)$")
_KIND = re.compile(r"^  Communicator ranks have different (\S{1,32}) operation counts$")
_MANY = re.compile(r"^  (\d{1,7}) ranks have (.+)$")
_RANK = re.compile(
    r"^  Rank (\d{1,7})(?: (has [^-]{1,60}?|reported .{1,60}?))? -- GPU (\d{1,4})(?: \(NVML (\d{1,4})\))? "
    r"managed by process (\d{1,10}) on node (\S{1,64})$"
)
_PROCESS = re.compile(r"^  Process (\d{1,10}) on node (\S{1,64}) managing GPU")
_OPERATION = re.compile(r"launched up to operation (\d{1,18})$")
_STATES = {"INIT": "initialising", "NOCOMM": "missing"}
_MOST_LINE_CHARACTERS = 4096


@dataclass
class _Block:
    """The lines of one communicator under one word of trouble, or under one kind of collective."""

    group: int
    name: str
    word: str
    kind: str = ""
    many: list[tuple[int, str]] = field(default_factory=list)
    ranks: list[tuple[int, str, Peer]] = field(default_factory=list)


@dataclass
class _Report:
    version: str = ""
    nodes: int = 0
    groups: dict[int, tuple[int, int, str]] = field(default_factory=dict)
    blocks: list[_Block] = field(default_factory=list)
    dead: set[tuple[str, int]] = field(default_factory=set)


def read(chunks: Iterator[bytes]) -> Snapshot:
    """Read a whole report.

    Raises:
        PartError: it isn't one.
    """
    report = _Report()
    for line in _lines(chunks):
        _read_line(line, report)
    if not report.version:
        raise PartError("malformed", "the report doesn't begin with NCCL's version")
    snapshot = Snapshot(report.version, form="text", nodes=report.nodes)
    _add_troubled(report, snapshot)
    _add_healthy(report, snapshot)
    return snapshot


def _lines(chunks: Iterator[bytes]) -> Iterator[str]:
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        if len(rest) > _MOST_LINE_CHARACTERS:
            raise PartError("malformed", "a line of the report has no end")
        yield from (line.decode("utf-8", "replace").rstrip("\r") for line in whole)
    yield rest.decode("utf-8", "replace")


def _read_line(line: str, report: _Report) -> None:
    block = report.blocks[-1] if report.blocks else None
    if not report.version and (match := _VERSION.match(line)):
        report.version = match[1]
    elif match := _GROUP.match(line):
        number, communicators, _, size = (int(match[place]) for place in (1, 2, 3, 4))
        report.groups[number] = communicators, size, match[5]
    elif not report.groups and (match := _NODES.match(line)):
        report.nodes = int(match[1])
    elif match := _BLOCK.match(line):
        report.blocks.append(_Block(int(match[1] or -1), match[2] or "", match[3]))
    elif block is not None:
        _read_detail(line, block, report)
    if len(report.blocks) > MOST_RANKS or len(report.groups) > MOST_RANKS:
        raise PartError("too_large", f"more than {MOST_RANKS} communicators in one answer")


def _read_detail(line: str, block: _Block, report: _Report) -> None:
    if match := _KIND.match(line):
        if block.kind or block.many:  # the next kind of the same communicator
            block = _Block(block.group, block.name, block.word)
            report.blocks.append(block)
        block.kind = match[1]
    elif match := _RANK.match(line):
        peer = Peer(match[6], min(int(match[5]), (1 << 31) - 1), int(match[4] or match[3]))
        what = match[2] or (block.many[-1][1] if block.many else "")
        block.ranks.append((int(match[1]), what.removeprefix("has "), peer))
    elif match := _MANY.match(line):
        block.many.append((int(match[1]), match[2].removeprefix("has ")))
    elif block.word == "DEAD" and (match := _PROCESS.match(line)):
        report.dead.add((match[2], int(match[1])))


def _add_troubled(report: _Report, snapshot: Snapshot) -> None:
    by_name: dict[str, list[_Block]] = {}
    for block in report.blocks:
        if block.name and block.group in report.groups:
            by_name.setdefault(block.name, []).append(block)
    for name, blocks in by_name.items():
        snapshot.communicators.append(_troubled(name, blocks, report, snapshot))


def _troubled(name: str, blocks: list[_Block], report: _Report, snapshot: Snapshot) -> Communicator:
    _, size, status = report.groups[blocks[0].group]
    comm = Communicator(f"0x{name.lstrip('0') or '0'}", size, ending=status in ("ABORT", "FINALIZE"))
    states: dict[int, tuple[Peer, str]] = {}
    for block in blocks:
        for rank, what, peer in block.ranks:
            if rank >= size:
                continue  # a torn report
            states.setdefault(rank, (peer, "ready"))
            if state := _state(block.word, what, peer, report):
                states[rank] = peer, state
    counts = [_counts(block, size) for block in blocks if block.kind]
    whole = "initialising" if status == "INIT" else "ready"
    # Those that are not named agree with most others; nobody can say which process each one is.
    unnamed = (rank for rank in range(min(size, MOST_RANKS)) if rank not in states)
    states.update((rank, (Peer("", snapshot.number(Peer(comm.name, -1, rank)), rank), whole)) for rank in unnamed)
    for rank, (peer, state) in sorted(states.items()):
        if state in ("missing", "unresponsive", "dead"):
            comm.add_absent(rank, snapshot.number(peer), state)
        else:
            launched = {kind: listed.get(rank, usual) for kind, listed, usual in counts}
            comm.add(rank, snapshot.number(peer), state, launched)
    return comm


def _state(word: str, what: str, peer: Peer, report: _Report) -> str:
    if word == "INCOMPLETE":
        return "dead" if (peer.host, peer.pid) in report.dead else "unresponsive"
    if word == "ERROR":
        return "error"
    return _STATES.get(what.removeprefix("status "), "")


def _counts(block: _Block, size: int) -> tuple[str, Mapping[int, int], int]:
    """Return a kind, the counts of the ranks that are named, and that of all others."""
    listed = {rank: _operation(what) for rank, what, _ in block.ranks}
    usual = max(block.many, default=(size, ""), key=lambda entry: entry[0])[1]
    return block.kind, listed, _operation(usual)


def _operation(what: str) -> int:
    match = _OPERATION.search(what)
    return int(match[1]) if match else 0


def _add_healthy(report: _Report, snapshot: Snapshot) -> None:
    troubled = [block.group for block in {block.name: block for block in report.blocks if block.name}.values()]
    for number, (communicators, size, status) in report.groups.items():
        left = communicators - troubled.count(number)
        if left > 0:
            state = "initialising" if status == "INIT" else "ready"
            comm = Communicator(f"group {number} of {size} ranks", size, ending=status in ("ABORT", "FINALIZE"))
            comm.states[state] = left * size
            snapshot.communicators.append(comm)
