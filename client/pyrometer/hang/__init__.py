"""``pyrometer-hang``: which rank a hang waits for, from the dumps of PyTorch's Flight Recorder alone.

Each rank of a hung job writes a dump of its last collectives: with ``TORCH_NCCL_DUMP_ON_TIMEOUT=1`` when the watchdog
fires, and on request. Here they are joined over ranks: who came to which collective of which group, who did not, and
who waits for nobody. A rank whose dump is too early is not named: in a run that goes on, ranks wait for each
other, too.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyrometer.hang.blame import Hang, examine
from pyrometer.hang.dump import BadDumpError, read_dump
from pyrometer.hang.main import main
from pyrometer.hang.records import Collective, Dump
from pyrometer.hang.report import explain
from pyrometer.hang.waits import Wait

__all__ = [
    "BadDumpError",
    "Collective",
    "Dump",
    "Hang",
    "Wait",
    "culprits",
    "examine",
    "explain",
    "join",
    "main",
    "read_dump",
]


def join(dumps: Iterable[Dump]) -> list[Wait]:
    """Return who is in which unfinished collective."""
    return list(examine(dumps).waits)


def culprits(dumps: Iterable[Dump], waits: Iterable[Wait] = ()) -> list[int]:  # noqa: ARG001  callers have both
    """Return the ranks that others wait for and that wait for nobody themselves."""
    return list(examine(dumps).named)
