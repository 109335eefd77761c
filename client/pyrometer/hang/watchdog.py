"""Read the lines of PyTorch's NCCL watchdog from a job's log: the cheapest evidence of a hang, there by default.

Each rank whose collective ran into its timeout writes which it was, and how far it is in the group; each other rank
that is asked for a dump then writes how far it is in its own (``ProcessGroupNCCL.cpp``, PyTorch 2.3 and newer)::

    [rank0]:[E709 17:05:38.16 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation timeout:
        WorkNCCL(SeqNum=20585, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600000 milliseconds
    [rank0]:[E709 17:05:38.16 ProcessGroupNCCL.cpp:2271] [PG ID 0 PG GUID 0(default_pg) Rank 0]  failure detected by
        watchdog at work sequence id: 20585 PG status: last enqueued work: 20589, last completed work: 20584
    [rank1]:[E709 17:05:38.48 ProcessGroupNCCL.cpp:1746] [PG ID 0 PG GUID 0(default_pg) Rank 1] Received a dump signal
        due to a collective timeout from rank 0 ... Last enqueued NCCL work: 20584, last completed NCCL work: 20584.

Whatever a launcher puts before a line doesn't matter. The status of a group may be the number of a send or receive,
which others count otherwise: a rank that is said to have launched less than others have finished is not judged there.
The last hang counts, where a job was started again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyrometer.hang.records import Collective, Dump, Part, Transfer

MOST_LINE = 4000
MOST_LINES = 1_000_000
ONE_HANG_SECONDS = 600.0
"""Ranks give up within seconds of each other; a job that is started again needs its timeout, 600 s, to hang again."""
_RANK = re.compile(r"\[rank(\d{1,7})\]:")
_GROUP = re.compile(r"\[PG (?:ID )?(\d{1,9})(?: PG GUID ([^\s(\]]{1,64}))? ?(?:\(([^)]{0,64})\))? Rank (\d{1,7})\]")
_CAUGHT = re.compile(
    r"WorkNCCL\(SeqNum=(\d{1,18}), OpType=(\w{1,64})(?:, NumelIn=(\d{1,18}), NumelOut=(\d{1,18}))?"
    r"(?:, Timeout\(ms\)=(\d{1,12}))?\)(?: ran for (\d{1,12}) ?(?:ms|milliseconds))?"
)
_STATUS = re.compile(
    r"last enqueued (?:NCCL )?work: (-?\d{1,18})(?:, last started (?:NCCL )?work: -?\d{1,18})?"
    r", last completed (?:NCCL )?work: (-?\d{1,18})",
    re.IGNORECASE,
)
_AT = re.compile(r"(?:sequence id|NCCL work|at work): (\d{1,18})")
_ALONE = re.compile(r"\[Rank (\d{1,7})\]")
_TIME = re.compile(r"\[[EIWF](\d{1,2})(\d\d) (\d\d):(\d\d):(\d\d)\.")
_TRANSFERS = frozenset({"SEND", "RECV", "COALESCED", "UNKNOWN"})
_NAMES = {"ALLREDUCE": "all_reduce", "ALLGATHER": "all_gather", "ALLTOALL": "all_to_all"}
# Each rank has sizes of its own in these, or only the root has some.
_NOT_COMPARED = re.compile("ALLTOALL|COALESCED|^GATHER$|^SCATTER$|^UNKNOWN$")


@dataclass
class _Progress:
    """How far a rank is in a group, and the operation that ran into its timeout there."""

    place: int
    enqueued: int = -1
    completed: int = -1
    caught: Collective | None = None
    transfers: bool = False


class WatchdogLog:
    """The watchdog's lines of a job, from the logs of all its ranks."""

    def __init__(self) -> None:
        self._lines: list[tuple[float, str]] = []
        self._progress: dict[tuple[str, int], _Progress] = {}
        self._titles: dict[str, str] = {}
        self._caught: dict[tuple[int, int], tuple[Collective, bool]] = {}

    def read(self, lines: Iterable[str]) -> None:
        """Keep the watchdog's lines of a log."""
        for whole in lines:
            if ("WorkNCCL(" in whole or "ompleted" in whole) and len(self._lines) < MOST_LINES:
                line = whole[-MOST_LINE:]
                if _CAUGHT.search(line) or _STATUS.search(line):
                    self._lines.append((_time(line), line))

    def dumps(self) -> list[Dump]:
        """Return the operations of each rank that has written such a line, as far as the lines say."""
        last = max((at for at, _ in self._lines), default=0.0)
        for at, line in self._lines:
            if not at or last - at <= ONE_HANG_SECONDS:
                self._take(line)
        self._lines.clear()
        dumps: dict[int, Dump] = {}
        by_group: dict[str, dict[int, _Progress]] = {}
        for (group, rank), progress in sorted(self._progress.items()):
            by_group.setdefault(group, {})[rank] = progress
        for group, ranks in by_group.items():
            self._join(group, ranks, dumps)
        for (rank, _), (collective, _) in self._caught.items():
            dumps.setdefault(rank, Dump(rank)).transfers.append(_somewhere("", collective))
        for dump in dumps.values():
            dump.in_p2p = bool(dump.transfers)
        return list(dumps.values())

    def _take(self, line: str) -> None:
        caught, status, group = _CAUGHT.search(line), _STATUS.search(line), _GROUP.search(line)
        rank = _rank(line, group)
        if rank is None:
            return
        number = self._keep(rank, caught) if caught is not None else None
        if group is None:
            return
        name = group[2] or group[1]
        self._titles[name] = self._titles.get(name) or group[3] or ""
        progress = self._progress.setdefault((name, rank), _Progress(int(group[4])))
        if status is not None:
            progress.enqueued = max(progress.enqueued, int(status[1]))
            progress.completed = max(progress.completed, int(status[2]))
            at = _AT.search(line)
            number = int(at[1]) if at else int(status[2]) + 1
        kept = self._caught.pop((rank, number), None) if number is not None else None
        if kept is not None:
            collective, is_transfer = kept
            progress.transfers |= is_transfer
            if progress.caught is None or collective.sequence < progress.caught.sequence:
                progress.caught = collective

    def _keep(self, rank: int, caught: re.Match[str]) -> int:
        """Keep an operation until a line says which group it is of; return its number."""
        number, kind = int(caught[1]), caught[2]
        name = _NAMES.get(kind, kind.lower())
        compared = caught[3] is not None and not _NOT_COMPARED.search(kind)
        parts = (Part(name, int(caught[3]), int(caught[4])),) if compared else ()
        ran, timeout = int(caught[6] or 0) / 1e3, int(caught[5] or 0) / 1e3
        made = Collective(number, f"nccl:{name}", finished=False, place="", timeout=timeout, parts=parts, ran=ran)
        self._caught[rank, number] = made, kind in _TRANSFERS
        return number

    def _join(self, group: str, ranks: Mapping[int, _Progress], dumps: dict[int, Dump]) -> None:
        places = [progress.place for progress in ranks.values()]
        # Disjoint groups of one name can't be told apart where a place is taken twice.
        unclear = len(places) > len(set(places)) or any(progress.transfers for progress in ranks.values())
        members = frozenset(ranks)
        if self._titles[group] == "default_pg":
            # Exactly one rank of the job is silent: its process is gone, or is stopped.
            silent = set(range(max(ranks))) - {rank for _, rank in self._progress}
            members |= silent if len(silent) == 1 else set()
        finished = max((progress.caught.sequence - 1 for progress in ranks.values() if progress.caught), default=-1)
        for rank, progress in ranks.items():
            dump = dumps.setdefault(rank, Dump(rank))
            dump.groups[group] = self._titles[group]
            if unclear and progress.caught:
                dump.transfers.append(_somewhere(group, progress.caught))
            elif not unclear and progress.caught is None and progress.enqueued < finished:
                dump.reaches_back = 1.0
                dump.members[group] = members
            elif not unclear:
                _add(dump, group, progress)
                dump.members[group] = members


def _add(dump: Dump, group: str, progress: _Progress) -> None:
    caught = progress.caught
    launched = max(progress.enqueued, caught.sequence if caught else -1)
    last = Collective(launched, "", finished=caught is None, place="")
    dump.latest[group] = caught if caught is not None and caught.sequence == launched else last
    if caught is not None:
        dump.open[group] = caught
        dump.recent[group] = {caught.sequence: caught}


def _somewhere(group: str, collective: Collective) -> Transfer:
    return Transfer(group, sends=False, peer=-1, number=0, collective=collective)


def _rank(line: str, group: re.Match[str] | None) -> int | None:
    """Return the rank in the job; the one in brackets is the group's, which is the same in the group of all."""
    told = _RANK.search(line)
    if told is not None:
        return int(told[1])
    if group is not None:
        return int(group[4]) if group[1] == "0" or group[3] == "default_pg" else None
    alone = _ALONE.search(line)
    return int(alone[1]) if alone else None


def _time(line: str) -> float:
    """Return the seconds in its year of ``[E709 17:05:38.16``, 0 where a line has none."""
    match = _TIME.search(line)
    if match is None:
        return 0.0
    month, day, hours, minutes, seconds = (int(part) for part in match.groups())
    return (((month * 31 + day) * 24 + hours) * 60 + minutes) * 60.0 + seconds
