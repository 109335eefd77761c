"""Keep the latest result of each active test in ``active.json`` of the state folder, for the exporter."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyrometer_kit.statefile import StateFile

FILE: Final = "active.json"
MODE: Final = 0o644
MOST_PEERS: Final = 4
"""So many peers of a test are kept and exported: a node that is tested with another one each week has few series."""


class Result(NamedTuple):
    """One measured value: the label ``test``, the unit, and the value."""

    test: str
    unit: str
    value: float


@dataclass(frozen=True)
class Tried:
    """A test's latest run.

    Attributes:
        ok: whether it passed; None where it ran and its answer could not be read.
        reason: why not, in words.
        at: when it ended, in seconds since the epoch.
        results: what it measured.
        peer: the other node, of a test of two.
    """

    ok: bool | None
    reason: str
    at: float
    results: tuple[Result, ...] = ()
    peer: str = ""


Key = tuple[str, str]
"""Name and peer of a test."""


def load(folder: Path | None) -> Mapping[Key, Tried]:
    """Return the latest run of each test, and of one of two nodes with each of its latest peers; none without a file.

    Raises:
        PermissionError: There is a file that this user may not read.
    """
    file = StateFile(folder, FILE, version=1)
    runs = file.load(_decoded)
    if file.denied:
        raise PermissionError(errno.EACCES, f"{FILE} can't be read by this user")
    return runs or {}


def added(tried: Mapping[Key, Tried], name: str, new: Tried) -> Mapping[Key, Tried]:
    """Return the runs with a new one: with a peer it is kept beside those with the latest others.

    >>> sorted(added({("ib", ""): Tried(True, "", 1.0)}, "ib", Tried(True, "", 2.0, (), "gpu-002")))
    [('ib', 'gpu-002')]
    """
    same = [run for run in tried.items() if run[0][0] == name and run[0][1] not in ("", new.peer)]
    latest = sorted(same, key=lambda run: run[1].at)[-(MOST_PEERS - 1) :] if new.peer else []
    others = {key: run for key, run in tried.items() if key[0] != name}
    return {**others, **dict(latest), (name, new.peer): new}


def save(folder: Path, tried: Mapping[Key, Tried]) -> None:
    """Replace the file, readable for the exporter's user whatever the umask of the one who tests.

    Raises:
        OSError: It can't be written.
    """
    data = {
        " ".join(filter(None, key)): {
            "ok": run.ok, "reason": run.reason, "at": run.at, "results": [list(result) for result in run.results],
            "name": key[0], "peer": run.peer,
        }
        for key, run in tried.items()
    }  # fmt: skip
    StateFile(folder, FILE, version=1, mode=MODE).save({"tests": data})


def _decoded(data: Mapping[str, Any]) -> Mapping[Key, Tried]:
    runs = {str(key): _tried(run) for key, run in data["tests"].items()}
    return {(str(data["tests"][key].get("name", key)), run.peer): run for key, run in runs.items()}


def _tried(data: Mapping[str, Any]) -> Tried:
    results = tuple(Result(str(test), str(unit), float(value)) for test, unit, value in data["results"])
    ok = None if data["ok"] is None else bool(data["ok"])
    return Tried(ok, str(data["reason"]), float(data["at"]), results, str(data.get("peer", "")))
