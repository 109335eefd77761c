"""``pyrometer-hang``: which rank a hang waits for, from the dumps of PyTorch's Flight Recorder alone.

Each rank of a hung job writes a dump of its last collectives: with ``TORCH_NCCL_DUMP_ON_TIMEOUT=1`` when the watchdog
fires, and on request. Here they are joined over ranks: who came to which collective of which group, who did not, and
who waits for nobody. A rank whose dump is too early is not named: in a run that goes on, ranks wait for each
other, too.

A dump is a pickle from a job, so nothing in it is ever called: it may hold dict, list, tuple, str, bytes, int, float,
bool and None. Its JSON form is read as well.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import pickle
import re
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from pyrometer._command_line import add_version_flag

MAX_DUMP_BYTES = 256 * 1024 * 1024
SHORT_SECONDS = 10.0
"""Ranks of a run that goes on wait for each other, too, but seldom for as long as this."""
_RANK = re.compile(r"(\d+)(?:\.json)?$")
# The group of all ranks has this description in entries, and no name in ``pg_config``.
_DEFAULT, _WHOLE_JOB = "default_pg", ""
# Frames of PyTorch itself say where a collective is made in PyTorch, not in the job.
_LIBRARY = re.compile(r"(?:^|/)(?:torch|deepspeed|lightning|accelerate|transformers)/")


class BadDumpError(ValueError):
    """A file that is no dump of the Flight Recorder, or one that must not be read."""


class _PlainUnpickler(pickle._Unpickler):  # noqa: SLF001  see read_dump
    """Builds plain values only, without the arrays for which it would take as many bytes as a dump claims to have."""

    dispatch = dict(pickle._Unpickler.dispatch)  # noqa: RUF012, SLF001
    del dispatch[pickle.BYTEARRAY8[0]]

    def find_class(self, module: str, name: str) -> NoReturn:
        """Refuse whatever a pickle could call."""
        raise BadDumpError(f"refused: it tries to load {module}.{name}")

    def persistent_load(self, pid: object) -> NoReturn:  # noqa: ARG002  the name that pickle gives it
        """Refuse references to what is not in the file."""
        raise BadDumpError("refused: it refers to something outside the file")


@dataclass(frozen=True)
class Collective:
    """A rank's latest collective in a group.

    Attributes:
        sequence: its number in the group, from 1.
        name: ``gloo:all_reduce``, ``nccl:broadcast``, ...
        finished: whether this rank is through with it.
        place: file, line and function in the job; empty where the dump has none.
        began: when this rank came to it, in Unix seconds; 0 where the dump doesn't say.
        timeout: after how many seconds PyTorch gives it up; 0 where the dump doesn't say.
    """

    sequence: int
    name: str
    finished: bool
    place: str
    began: float = 0.0
    timeout: float = 0.0


@dataclass
class Dump:
    """The collectives of one rank, from its dump.

    Attributes:
        rank: the global rank, from the file's name.
        latest: its latest collective by group.
        groups: descriptions of the groups it knows, by name.
        members: the global ranks of those groups whose members it knows.
        in_p2p: whether it is in a ``send`` or ``recv`` that has not finished.
        written: when the file was written, in Unix seconds; 0 where that is not known.
    """

    rank: int
    latest: dict[str, Collective] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)
    members: dict[str, frozenset[int]] = field(default_factory=dict)
    in_p2p: bool = False
    written: float = 0.0


@dataclass(frozen=True)
class Wait:
    """Ranks of a group that wait in a collective for those that have not come to it."""

    group: str
    collective: Collective
    waiting: tuple[int, ...]
    missing: tuple[int, ...]
    others: tuple[tuple[int, str], ...]
    """Ranks that are in another collective with the same number, and its name."""
    unsure: tuple[tuple[int, float], ...] = ()
    """Missing ranks that were seen too early, and how long after the last of the others had come."""


def read_dump(path: str) -> Dump:
    """Return the dump in this file.

    pickle's own unpickler in C takes gigabytes for a few bytes that name a high memo number; the one in Python doesn't,
    but for one kind of value that no dump has.

    Raises:
        BadDumpError: it is no dump, or a hostile one.
        OSError: it can't be read.
    """
    data, written = _read(path)
    try:
        whole = json.loads(data) if data[:1] == b"{" else _PlainUnpickler(io.BytesIO(data)).load()
    except BadDumpError:
        raise
    except Exception as error:  # noqa: BLE001  a pickle of anything raises anything
        raise BadDumpError(f"no dump: {type(error).__name__}: {error}") from None
    match = _RANK.search(os.path.basename(path))
    if not isinstance(whole, dict) or not isinstance(whole.get("entries"), list) or match is None:
        raise BadDumpError("no dump of the Flight Recorder: it has no entries, or its name doesn't end in the rank")
    dump = _dump(int(match[1]), whole)
    dump.written = written
    return dump


def join(dumps: Iterable[Dump]) -> list[Wait]:
    """Return who waits for whom, one for each group in which somebody does."""
    by_rank = {dump.rank: dump for dump in dumps}
    waits = []
    for group in sorted({name for dump in by_rank.values() for name in dump.latest}):
        ranks = _members(group, by_rank)
        latest = {
            rank: by_rank[rank].latest[group] for rank in ranks if rank in by_rank and group in by_rank[rank].latest
        }
        front = max(collective.sequence for collective in latest.values())
        at_front = {rank: collective for rank, collective in latest.items() if collective.sequence == front}
        waiting = tuple(sorted(rank for rank, collective in at_front.items() if not collective.finished))
        missing = tuple(sorted(ranks - at_front.keys()))
        names = [collective.name for collective in at_front.values()]
        usual = max(sorted(set(names)), key=names.count)
        others = tuple(
            sorted((rank, collective.name) for rank, collective in at_front.items() if collective.name != usual)
        )
        if waiting and (missing or others):
            shown = next(collective for collective in at_front.values() if collective.name == usual)
            standing = {rank: at_front[rank] for rank in waiting}
            waits.append(Wait(group, shown, waiting, missing, others, tuple(_unsure(standing, missing, by_rank))))
    return waits


def _unsure(
    standing: Mapping[int, Collective], missing: Iterable[int], by_rank: Mapping[int, Dump]
) -> Iterator[tuple[int, float]]:
    """Yield the missing ranks that were seen too early, and how long after the last of the others had come.

    The others' dumps decide about a rank that wrote no dump, or none when they did.
    """
    last_came = max(collective.began for collective in standing.values())
    last_seen = max(by_rank[rank].written for rank in standing)
    timeouts = [0.9 * collective.timeout for collective in standing.values() if collective.timeout > 0]
    for rank in missing if last_came and last_seen else ():
        written = by_rank[rank].written if rank in by_rank else 0.0
        seen = written if last_seen - written < SHORT_SECONDS else last_seen
        if seen - last_came < min([SHORT_SECONDS, *timeouts]):
            yield rank, seen - last_came


def culprits(dumps: Iterable[Dump], waits: Iterable[Wait]) -> list[int]:
    """Return the ranks that others wait for and that wait for nobody themselves."""
    waits = list(waits)
    unlike = {rank for wait in waits for rank, _ in wait.others}
    awaited = unlike.union(*(set(wait.missing) - dict(wait.unsure).keys() for wait in waits))
    waiting = {rank for wait in waits for rank in wait.waiting} | {dump.rank for dump in dumps if dump.in_p2p}
    return sorted((awaited - waiting) or unlike)


def explain(dumps: Sequence[Dump]) -> list[str]:
    """Return lines that say which collective hangs, who came to it, who did not, and where in the code."""
    by_rank = {dump.rank: dump for dump in dumps}
    lines, waits = [], join(dumps)
    for wait in waits:
        name = f"{wait.collective.name} {wait.collective.sequence:,} of {_group_name(wait.group, dumps)}"
        lines.append(
            f"{len(wait.waiting)} of the ranks wait in {name}{_at(wait.collective.place)}: {_some(wait.waiting)}"
        )
        if wait.missing:
            lines.append(f"did not reach it: {_some(wait.missing)}")
        if wait.unsure:
            lines.append(_may_have_come(wait.unsure))
        lines.extend(f"  rank {rank} is in {other} instead" for rank, other in wait.others)
    named = culprits(dumps, waits)
    lines.extend(_last_seen(rank, by_rank.get(rank)) for rank in named)
    if not named:
        lines.append(_nobody(waits))
    return [_printable(line) for line in lines]


def _may_have_come(unsure: Sequence[tuple[int, float]]) -> str:
    seconds = min(seconds for _, seconds in unsure)
    when = f"{abs(seconds):,.1f} s {'before' if seconds < 0 else 'after'}"
    ranks = _some([rank for rank, _ in unsure])
    return f"may come, or have come since: {ranks}, seen {when} the last of the others came"


def _nobody(waits: Sequence[Wait]) -> str:
    if any(wait.unsure for wait in waits):
        return "Nobody is named: a run that goes on looks the same. Ask for dumps of all ranks again."
    why = "every rank that others wait for is waiting too." if waits else "nobody waits."
    return f"No single rank differs: {why}"


def main(argv: Sequence[str] | None = None) -> int:
    """Explain the dumps in a directory. Return 0 if a rank is named, 1 if none, 2 if there is no dump to read."""
    parser = argparse.ArgumentParser(
        prog="pyrometer-hang",
        description="Name the rank that a hung job waits for, from the dumps of PyTorch's Flight Recorder.",
    )
    add_version_flag(parser)
    parser.add_argument("directory", metavar="DIRECTORY", help="where the dumps of all ranks are")
    directory = parser.parse_args(argv).directory
    dumps: dict[int, Dump] = {}
    try:
        names = sorted(name for name in os.listdir(directory) if _RANK.search(name))
    except OSError as error:
        sys.stderr.write(f"pyrometer-hang: {directory}: {error.strerror}\n")
        return 2
    for name in names:
        try:
            dump = read_dump(os.path.join(directory, name))
            dumps[dump.rank] = dump
        except (BadDumpError, OSError) as error:
            sys.stderr.write(f"pyrometer-hang: {name}: {_printable(str(error))}\n")
    if not dumps:
        sys.stderr.write(
            f"pyrometer-hang: {directory}: no dumps found; their names must end in the rank, as in nccl_trace_rank_0\n"
        )
        return 2
    ranks = list(dumps.values())
    sys.stdout.write("\n".join(explain(ranks)) + "\n")
    return 0 if culprits(ranks, join(ranks)) else 1


def _read(path: str) -> tuple[bytes, float]:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_DUMP_BYTES:
            raise BadDumpError("no regular file of at most 256 MB")
        return file.read(status.st_size), status.st_mtime  # a larger number would be taken as memory at once


def _dump(rank: int, whole: dict[Any, Any]) -> Dump:
    dump = Dump(rank)
    completed = _completed(whole.get("pg_status"))
    for entry in whole["entries"]:
        if isinstance(entry, dict):
            _add(dump, entry, completed)
    config = whole.get("pg_config")
    for name, of in config.items() if isinstance(config, dict) else ():
        ranks = re.findall(r"\d+", str(of.get("ranks"))[:1_000_000]) if isinstance(of, dict) else []
        if isinstance(name, str) and ranks:
            dump.members[name] = frozenset(map(int, ranks))
    return dump


def _completed(status: object) -> dict[str, int]:
    """Return the number of the last completed collective by the process' own number of a group."""
    completed = {}
    for number, of in status.items() if isinstance(status, dict) else ():
        last = of.get("last_completed_collective") if isinstance(of, dict) else None
        if isinstance(last, (int, str)) and re.fullmatch(r"-?\d{1,18}", str(last)):
            completed[str(number)[:20]] = int(last)
    return completed


def _add(dump: Dump, entry: dict[Any, Any], completed: dict[str, int]) -> None:
    group, sequence, name = entry.get("process_group"), entry.get("collective_seq_id"), entry.get("profiling_name")
    if not (isinstance(group, (tuple, list)) and group and isinstance(group[0], str)):
        return
    if not (isinstance(sequence, int) and isinstance(name, str)):
        return
    finished = entry.get("state") == "completed" or sequence <= completed.get(str(entry.get("pg_id")), -1)
    if entry.get("is_p2p"):
        dump.in_p2p = entry.get("state") != "completed" and not entry.get("retired")
        return
    latest = dump.latest.get(group[0])
    if latest is None or sequence >= latest.sequence:
        began, timeout = _seconds(entry.get("time_created_ns"), 1e9), _seconds(entry.get("timeout_ms"), 1e3)
        dump.latest[group[0]] = Collective(sequence, name, finished, _place(entry.get("frames")), began, timeout)
        if len(group) > 1 and isinstance(group[1], str):
            dump.groups[group[0]] = group[1]


def _seconds(count: object, in_a_second: float) -> float:
    return count / in_a_second if isinstance(count, int) and 0 < count < 1 << 63 else 0.0


def _place(frames: object) -> str:
    """Return the innermost frame of the job's own."""
    for frame in frames if isinstance(frames, list) else ():
        if not isinstance(frame, dict):
            continue
        file, line, name = frame.get("filename"), frame.get("line"), frame.get("name")
        if isinstance(file, str) and isinstance(line, int) and not _LIBRARY.search(file):
            return f"{os.path.basename(file)}:{line} in {name if isinstance(name, str) else '?'}"
    return ""


def _members(group: str, dumps: dict[int, Dump]) -> set[int]:
    """Return the ranks of a group: as configured, and who has made a collective in it."""
    made = {rank for rank, dump in dumps.items() if group in dump.latest}
    names = {group, _WHOLE_JOB} if any(dump.groups.get(group) == _DEFAULT for dump in dumps.values()) else {group}
    told = [dump.members[name] for dump in dumps.values() for name in names & dump.members.keys()]
    return made.union(*told)


def _group_name(group: str, dumps: Iterable[Dump]) -> str:
    text = next((dump.groups[group] for dump in dumps if dump.groups.get(group) not in (None, "", "undefined")), "")
    return f"group {group} ({text})" if text else f"group {group}"


def _last_seen(rank: int, dump: Dump | None) -> str:
    if dump is None:
        return f"=> the others wait for rank {rank}: it wrote no dump"
    return f"=> the others wait for rank {rank}; its last collectives: " + (
        "; ".join(f"{one.name} {one.sequence:,} of group {group}{_at(one.place)}" for group, one in dump.latest.items())
        or "none"
    )


def _at(place: str) -> str:
    return f", {place}" if place else ""


def _some(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:16]))
    return f"ranks {shown}" + (f" and {len(ranks) - 16} more" if len(ranks) > 16 else "")


def _printable(text: str) -> str:
    """Return text that a terminal shows as it is: what a dump holds is the job's."""
    return "".join(char if char.isprintable() else "?" for char in text[:2000])


if __name__ == "__main__":
    sys.exit(main())
