"""Keep the latest result of each active test in ``active.json`` of the state folder, for the exporter."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass, replace
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


OK: Final = "ok"
FAILED: Final = "failed"
NOT_MEASURED: Final = "not_measured"
UNKNOWN: Final = "unknown"
VERDICTS: Final = (OK, FAILED)


@dataclass(frozen=True)
class Tried:
    """A test's latest run.

    Attributes:
        state: ``ok``; ``failed``: a loss was named or measured; ``not_measured``: it ran, and its answer covers nothing
            or not all; ``unknown``: it could not be run to its end, or its output could not be read.
        reason: why not ``ok``, in words.
        at: when it ended, in seconds since the epoch.
        results: what it measured.
        peer: the other node, of a test of two.
        tool: the program's name.
        part: what the failure is of, such as ``GPU 3``; empty where the tool named none.
        before: the latest verdict, or else the first run, where this run gave none.
    """

    state: str
    reason: str
    at: float
    results: tuple[Result, ...] = ()
    peer: str = ""
    tool: str = ""
    part: str = ""
    before: Tried | None = None

    @property
    def verdict(self) -> Tried | None:
        """The latest run that passed or failed."""
        run = self if self.state in VERDICTS else self.before
        return run if run is not None and run.state in VERDICTS else None


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

    >>> sorted(added({("ib", ""): Tried("ok", "", 1.0)}, "ib", Tried("ok", "", 2.0, (), "gpu-002")))
    [('ib', 'gpu-002')]

    One that gave no verdict leaves the verdict before it standing: a failure ends with a pass alone.

    >>> runs = added({("dcgm", ""): Tried("failed", "GPU 3", 1.0)}, "dcgm", Tried("unknown", "no host engine", 2.0))
    >>> runs["dcgm", ""].verdict.reason
    'GPU 3'
    """
    same = [run for run in tried.items() if run[0][0] == name and run[0][1] not in ("", new.peer)]
    latest = sorted(same, key=lambda run: run[1].at)[-(MOST_PEERS - 1) :] if new.peer else []
    others = {key: run for key, run in tried.items() if key[0] != name}
    old = tried.get((name, new.peer))
    if old is not None and new.state not in VERDICTS:
        new = replace(new, before=old.before or old)
    return {**others, **dict(latest), (name, new.peer): new}


def save(folder: Path, tried: Mapping[Key, Tried]) -> None:
    """Replace the file, readable for the exporter's user whatever the umask of the one who tests.

    Raises:
        OSError: It can't be written.
    """
    data = {" ".join(filter(None, key)): {"name": key[0], **_plain(run)} for key, run in tried.items()}
    StateFile(folder, FILE, version=1, mode=MODE).save({"tests": data})


def _plain(run: Tried) -> Mapping[str, Any]:
    return {
        "state": run.state, "reason": run.reason, "at": run.at, "results": [list(result) for result in run.results],
        "peer": run.peer, "tool": run.tool, "part": run.part, "before": _plain(run.before) if run.before else None,
    }  # fmt: skip


def _decoded(data: Mapping[str, Any]) -> Mapping[Key, Tried]:
    runs = {str(key): _tried(run) for key, run in data["tests"].items()}
    return {(str(data["tests"][key].get("name", key)), run.peer): run for key, run in runs.items()}


def _tried(data: Mapping[str, Any]) -> Tried:
    results = tuple(Result(str(test), str(unit), float(value)) for test, unit, value in data["results"])
    texts = {name: str(data.get(name, "")) for name in ("peer", "tool", "part")}
    before = data.get("before")
    # Up to 0.9 there was "ok", true, false, or null for an answer that could not be read.
    state = data["state"] if "state" in data else {True: OK, False: FAILED}.get(data["ok"], UNKNOWN)
    at = float(data["at"])
    return Tried(str(state), str(data["reason"]), at, results, **texts, before=_tried(before) if before else None)
