"""Keep the latest result of each active test in ``active.json`` of the state folder, for the exporter."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyrometer_exporters.node.active.parsers import Result
from pyrometer_kit.statefile import StateFile

FILE: Final = "active.json"
VERSION: Final = 1
MODE: Final = 0o644


@dataclass(frozen=True)
class Tried:
    """A test's latest run.

    Attributes:
        ok: whether it passed; None where it ran and its answer could not be read.
        reason: why not, in words.
        at: when it ended, in seconds since the epoch.
        results: what it measured.
    """

    ok: bool | None
    reason: str
    at: float
    results: tuple[Result, ...] = ()


def load(folder: Path | None) -> Mapping[str, Tried]:
    """Return the latest run of each test; none where there is no file.

    Raises:
        PermissionError: There is a file that this user may not read.
    """
    file = StateFile(folder, FILE)
    found = file.load(_decoded)
    if file.denied:
        raise PermissionError(errno.EACCES, f"{FILE} can't be read by this user")
    return found or {}


def save(folder: Path, tried: Mapping[str, Tried]) -> None:
    """Replace the file, readable for the exporter's user whatever the umask of the one who tests.

    Raises:
        OSError: It can't be written.
    """
    data = {
        name: {"ok": each.ok, "reason": each.reason, "at": each.at, "results": [list(one) for one in each.results]}
        for name, each in tried.items()
    }
    StateFile(folder, FILE, mode=MODE).save({"version": VERSION, "tests": data})


def _decoded(data: Mapping[str, Any]) -> Mapping[str, Tried]:
    if data["version"] != VERSION:
        msg = f"version {data['version']!r} instead of {VERSION}"
        raise ValueError(msg)
    return {str(name): _tried(each) for name, each in data["tests"].items()}


def _tried(data: Mapping[str, Any]) -> Tried:
    results = tuple(Result(str(test), str(unit), float(value)) for test, unit, value in data["results"])
    ok = None if data["ok"] is None else bool(data["ok"])
    return Tried(ok, str(data["reason"]), float(data["at"]), results)
