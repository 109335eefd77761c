"""Read a dump of PyTorch's Flight Recorder: the pickle or the JSON that one rank wrote.

A pickle from a job is data of a stranger, so nothing in it is ever called: it may hold dict, list, tuple, str, bytes,
int, float, bool and None. The fields are those of ``torch/csrc/distributed/c10d/FlightRecorder.hpp``.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from pyrometer.hang import plain_pickle
from pyrometer.hang.members import MOST_RANKS
from pyrometer.hang.records import Collective, Dump, Part, Transfer

MAX_DUMP_BYTES = 256 * 1024 * 1024
RANK_OF_NAME = re.compile(r"(\d+)(?:\.json)?$")
# The group of all ranks has this description in entries, and no name in ``pg_config`` of newer versions.
_DEFAULT, _WHOLE_JOB = "default_pg", ""
# Frames of PyTorch itself say where a collective is made in PyTorch, not in the job.
_LIBRARY = re.compile(r"(?:^|/)(?:torch|deepspeed|lightning|accelerate|transformers)/")
_TRANSFER = re.compile(r"(?:^|:)(send|recv)(?: (\d{1,9})(?:->|<-)(\d{1,9}))?")
_MOST_PARTS = 64
_MOST_DIMENSIONS = 64


class BadDumpError(ValueError):
    """A file that is no dump of the Flight Recorder, or one that must not be read."""


def read_dump(path: str) -> Dump:
    """Return the dump in this file.

    Raises:
        BadDumpError: it is no dump, or a hostile one.
        OSError: it can't be read.
    """
    data, written = _read(path)
    try:
        whole = json.loads(data) if data[:1] == b"{" else plain_pickle.load(data)
    except plain_pickle.RefusedError as error:
        raise BadDumpError(str(error)) from None
    except Exception as error:  # noqa: BLE001  a pickle of anything raises anything
        raise BadDumpError(f"no dump: {type(error).__name__}: {error}") from None
    match = RANK_OF_NAME.search(os.path.basename(path))
    if not isinstance(whole, dict) or not isinstance(whole.get("entries"), list) or match is None:
        raise BadDumpError("no dump of the Flight Recorder: it has no entries, or its name doesn't end in the rank")
    dump = _dump(int(match[1]), whole)
    dump.written = written
    return dump


def _read(path: str) -> tuple[bytes, float]:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_DUMP_BYTES:
            raise BadDumpError("no regular file of at most 256 MB")
        return file.read(status.st_size), status.st_mtime  # a larger number would be taken as memory at once


@dataclass
class _Made:
    """Collectives of a rank in one group: the last that it finished, and all that it did not, by number."""

    done: int = -1
    ended: bool = False
    parts: dict[int, list[tuple[int, dict[Any, Any]]]] = field(default_factory=dict)

    def add(self, order: int, sequence: int, entry: dict[Any, Any]) -> None:
        if entry.get("retired") is True or entry.get("state") == "completed":
            self.ended = True
            if sequence < self.done:
                return
            if sequence > self.done:
                self.parts.pop(self.done, None)
                self.done = sequence
        self.parts.setdefault(sequence, []).append((order, entry))


def _dump(rank: int, whole: dict[Any, Any]) -> Dump:
    dump = Dump(rank)
    entries = [entry for entry in whole["entries"] if isinstance(entry, dict)]
    made: dict[str, _Made] = {}
    transfers: list[tuple[int, str, dict[Any, Any]]] = []
    for order, entry in enumerate(entries):
        group, sequence = entry.get("process_group"), _number(entry.get("collective_seq_id"))
        if not isinstance(group, (tuple, list)) or not group or not isinstance(group[0], str):
            continue
        if sequence is None or not isinstance(entry.get("profiling_name"), str):
            continue
        name = group[0]
        if name not in dump.groups and len(group) > 1 and isinstance(group[1], str):
            dump.groups[name] = group[1]
        dump.active = _seconds(entry.get("time_created_ns"), 1e9)
        if entry.get("is_p2p"):
            transfers.append((order, name, entry))
        else:
            if name not in made:
                made[name] = _Made()
            made[name].add(order, sequence, entry)
    # Where a group has sends and receives, the numbers of ``pg_status`` may be theirs.
    mixed = {name for _, name, _ in transfers}
    status = whole.get("pg_status")
    lost = bool(entries) and (_number(entries[0].get("record_id")) or 0) > 0
    for name, of in made.items():
        newest = of.parts[max(of.parts)][-1][1]
        told = status.get(str(newest.get("pg_id"))) if isinstance(status, dict) and name not in mixed else None
        _add_collectives(dump, name, of, told if isinstance(told, dict) else {}, lost=lost)
    _add_transfers(dump, transfers)
    _add_members(dump, whole.get("pg_config"))
    # A dump of unfinished operations alone has gaps in its records, and lacks nothing that hangs.
    whole_since = [entry for entry in entries[:1] if lost and _finished([entry])]
    dump.reaches_back = _seconds(whole_since[0].get("time_created_ns"), 1e9) if whole_since else 0.0
    return dump


def _add_collectives(dump: Dump, group: str, made: _Made, status: Mapping[Any, Any], *, lost: bool) -> None:
    """Add a group's collectives; those of one group end in their order."""
    completed = _number(status.get("last_completed_collective"))
    done = max(made.done, -1 if completed is None else completed)
    last = max(made.parts)
    kept = {
        sequence: _collective(sequence, parts, finished=sequence <= done)
        for sequence, parts in made.parts.items()
        if sequence > done or sequence in (last, done)
    }
    dump.recent[group] = kept
    dump.latest[group] = kept[last]
    unfinished = [sequence for sequence in made.parts if sequence > done]
    if unfinished:
        first = min(unfinished)
        dump.open[group] = kept[first]
        if lost and not made.ended and completed is not None and 0 <= completed < first - 1:
            dump.open[group] = Collective(completed + 1, "", finished=False, place="")


def _collective(sequence: int, parts: Sequence[tuple[int, dict[Any, Any]]], *, finished: bool) -> Collective:
    order, last = parts[-1]
    return Collective(
        sequence,
        str(last["profiling_name"]),
        finished,
        _place(last.get("frames")),
        _seconds(parts[0][1].get("time_created_ns"), 1e9),
        _seconds(last.get("timeout_ms"), 1e3),
        last.get("state") == "started",
        order,
        tuple(_part(part) for _, part in parts[:_MOST_PARTS]) if not finished else (),
    )


def _part(entry: Mapping[Any, Any]) -> Part:
    name = str(entry["profiling_name"]).split(":", 1)[-1]
    types = f"{_types(entry['input_dtypes'])} {_types(entry.get('output_dtypes'))}" if "input_dtypes" in entry else ""
    return Part(name, _elements(entry.get("input_sizes")), _elements(entry.get("output_sizes")), types[:200])


def _types(names: object) -> str:
    """Return a list's text; what isn't a list of short names may have a text without end."""
    is_plain = isinstance(names, list) and len(names) <= _MOST_PARTS and all(isinstance(name, str) for name in names)
    return str(names) if is_plain else ""


def _elements(sizes: object) -> int:
    if not isinstance(sizes, list):
        return -1
    total = 0
    for shape in sizes:
        if not isinstance(shape, list) or not all(isinstance(size, int) for size in shape):
            return -1
        total += math.prod(shape[:_MOST_DIMENSIONS]) if shape else 0
    return total if abs(total) < 1 << 63 else -1


def _finished(parts: Iterable[Mapping[Any, Any]]) -> bool:
    """Return whether any entry of an operation says so: of a coalesced one only the last does."""
    return any(part.get("state") == "completed" or part.get("retired") is True for part in parts)


def _add_transfers(dump: Dump, entries: Sequence[tuple[int, str, dict[Any, Any]]]) -> None:
    """Add the first unfinished transfer of each kind and peer, or the last one: they end in their order.

    A transfer in a batch stays ``scheduled``; the entry of the batch after it has the same numbers and the state.
    """
    batches = {
        (group, _number(entry.get("collective_seq_id")), _number(entry.get("p2p_seq_id"))): _finished([entry])
        for _, group, entry in entries
        if "coalesced" in entry["profiling_name"]
    }
    dump.batched = {group for group, _, _ in batches}
    pairs: dict[tuple[str, bool, int], list[Transfer]] = {}
    for order, group, entry in entries:
        match = _TRANSFER.search(entry["profiling_name"])
        sequence, own = _number(entry.get("collective_seq_id")) or 0, _number(entry.get("p2p_seq_id")) or 0
        batch = group, _number(entry.get("collective_seq_id")), _number(entry.get("p2p_seq_id"))
        finished = _finished([entry]) or batches.get(batch, False)
        if match is None:
            continue
        one = _collective(sequence, [(order, entry)], finished=finished)
        transfer = Transfer(group, match[1] == "send", int(match[3]) if match[3] else -1, sequence + own, one)
        pairs.setdefault((group, transfer.sends, transfer.peer), []).append(transfer)
    for made in pairs.values():
        last = max((index for index, transfer in enumerate(made) if transfer.collective.finished), default=-1)
        dump.transfers.append(made[last + 1] if last + 1 < len(made) else made[last])
    dump.in_p2p = any(not transfer.collective.finished for transfer in dump.transfers)


def _add_members(dump: Dump, config: object) -> None:
    for name, of in config.items() if isinstance(config, dict) else ():
        ranks = _ranks(of.get("ranks")) if isinstance(of, dict) else frozenset()
        if not isinstance(name, str) or not ranks:
            continue
        if name == _WHOLE_JOB:
            name = next((group for group, text in dump.groups.items() if text == _DEFAULT), "0")  # noqa: PLW2901
        dump.members[name] = ranks
        if isinstance(of.get("desc"), str) and of["desc"]:
            dump.groups.setdefault(name, of["desc"])


def _ranks(told: object) -> frozenset[int]:
    """Return the ranks of a list of numbers, or of its text."""
    if isinstance(told, list) and len(told) <= MOST_RANKS:
        return frozenset(number for number in map(_number, told) if number is not None)
    return _of_text(told) if isinstance(told, str) and len(told) <= 1_000_000 else frozenset()


@lru_cache(maxsize=64)  # the same text for thousands of ranks
def _of_text(text: str) -> frozenset[int]:
    return frozenset(map(int, re.findall(r"\d{1,9}", text)))


def _number(value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value if abs(value) < 1 << 63 else None
    return int(value) if isinstance(value, str) and re.fullmatch(r"-?\d{1,18}", value) else None


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
