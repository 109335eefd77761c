"""Describe dumps of the Flight Recorder, an object of JSON a line: ``python -m pyrometer._describe_dumps FILE ...``.

A program that must go on whatever a job wrote reads its dumps so: in a process of its own, with limits of its own::

    {"file": "/dumps/rank_2", "rank": 2, "whole": true, "latest": [{"group": "2", "name": "tensor", "ranks": 2,
     "members": "2-3", "sequence": 5, "launched": 6, "collective": "gloo:all_reduce", "finished": false,
     "place": "train.py:21 in train", "shape": "16 16 Float Float"}]}
    {"file": "/dumps/rank_3", "error": "refused: it wants to load posix.system"}
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import sys
from collections.abc import Sequence
from typing import Any

from pyrometer.hang import Collective, Dump, read_dump
from pyrometer.hang.members import text_of

# Dumps have some megabytes; as Python's values they take ten times that.
MOST_MEMORY_BYTES = 2 << 30
MOST_CPU_SECONDS = 60
MOST_GROUPS = 16
"""Groups that are described of a rank: those in which it waits, then the latest."""
MOST_TRANSFERS = 8
_NICENESS = 10
_MOST_TEXT = 128


def main(argv: Sequence[str] | None = None) -> int:
    """Describe each file on standard output; the exit status."""
    for limit, most in ((resource.RLIMIT_AS, MOST_MEMORY_BYTES), (resource.RLIMIT_CPU, MOST_CPU_SECONDS)):
        with contextlib.suppress(OSError, ValueError):  # there is a lower one already
            resource.setrlimit(limit, (most, most))
    os.nice(_NICENESS)
    for path in sys.argv[1:] if argv is None else argv:
        sys.stdout.write(json.dumps({"file": path, **_described(path)}) + "\n")
        sys.stdout.flush()
    return 0


def _described(path: str) -> dict[str, Any]:
    try:
        dump = read_dump(path)
    except Exception as error:  # noqa: BLE001  whatever a job wrote costs its own file alone
        return {"error": _text(str(error) or type(error).__name__)}
    groups = [group for group in list(dump.latest)[::-1] if group not in dump.batched]
    groups.sort(key=lambda group: dump.latest[group].finished)
    latest = [
        _operation(dump, group, dump.open.get(group, dump.latest[group]), dump.latest[group].sequence)
        for group in groups[:MOST_GROUPS]
    ]
    transfers = sorted(dump.transfers, key=lambda transfer: transfer.collective.finished)
    latest += [
        _operation(dump, transfer.group, transfer.collective, transfer.number, transfer.number)
        for transfer in transfers[:MOST_TRANSFERS]
    ]
    whole = len(groups) <= MOST_GROUPS and not dump.reaches_back and not dump.batched
    return {"rank": dump.rank, "latest": latest, "whole": whole}


def _operation(
    dump: Dump, group: str, operation: Collective, launched: int, number: int | None = None
) -> dict[str, Any]:
    members = dump.members.get(group, frozenset())
    alone = operation.parts[0] if len(operation.parts) == 1 else None
    return {
        "group": _text(group), "name": _text(dump.groups.get(group, "")), "ranks": len(members),
        "members": text_of(members) if dump.rank in members else "", "launched": launched,
        "sequence": operation.sequence if number is None else number, "collective": _text(operation.name),
        "finished": operation.finished, "place": _text(operation.place),
        "shape": _text(f"{alone.inputs} {alone.outputs} {_types(alone.types)}") if alone and alone.inputs >= 0 else "",
    }  # fmt: skip


def _types(text: str) -> str:
    return " ".join("".join(char if char.isalnum() else " " for char in text).split())


def _text(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text[:_MOST_TEXT])


if __name__ == "__main__":
    sys.exit(main())
