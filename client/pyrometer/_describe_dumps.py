"""Describe dumps of the Flight Recorder, an object of JSON a line: ``python -m pyrometer._describe_dumps FILE ...``.

A program that must go on whatever a job wrote reads its dumps so: in a process of its own, with limits of its own::

    {"file": "/dumps/rank_2", "rank": 2, "in_p2p": false, "latest": [{"group": "2", "name": "tensor", "ranks": 2,
     "sequence": 5, "collective": "gloo:all_reduce", "finished": true, "place": "train.py:21 in train"}]}
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

from pyrometer.hang import BadDumpError, Dump, read_dump

# Dumps have some megabytes; as Python's values they take ten times that.
MOST_MEMORY_BYTES = 2 << 30
MOST_CPU_SECONDS = 60
MOST_GROUPS = 16
"""Groups that are described of a rank: those in which it waits, then the latest."""
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
    except (BadDumpError, OSError, MemoryError) as error:
        return {"error": _text(str(error) or type(error).__name__)}
    groups = list(dump.latest)[::-1]
    groups.sort(key=lambda group: dump.latest[group].finished)
    latest = [_latest(dump, group) for group in groups[:MOST_GROUPS]]
    return {"rank": dump.rank, "in_p2p": dump.in_p2p, "latest": latest}


def _latest(dump: Dump, group: str) -> dict[str, Any]:
    one = dump.latest[group]
    return {
        "group": _text(group), "name": _text(dump.groups.get(group, "")), "ranks": len(dump.members.get(group, ())),
        "sequence": one.sequence, "collective": _text(one.name), "finished": one.finished, "place": _text(one.place),
    }  # fmt: skip


def _text(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text[:_MOST_TEXT])


if __name__ == "__main__":
    sys.exit(main())
