"""Keep for the next look what a node has, each part with a day of its own, and which processes were stuck since when.

The file is ``checks.json`` in the state folder. Where it can't be written, nothing is learned::

    {"version": 2, "since": 1764300000.0, "at": 1764390000.0, "uptime": 90000.0,
     "learned": {"hcas": {"guid:7c8c:0903:0010:0001": {"name": "mlx5_0", "address": "0000:18:00.0"}}},
     "candidate": {"hcas": {"guid:7c8c:0903:0010:0001": [{"name": "mlx5_0", "address": "0000:18:00.0"}, 0.0]}},
     "gone": {}, "stuck": {}}

Times in ``candidate`` and ``gone`` are seconds after ``since``, so that a clock that jumps moves one number.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pyrometer_exporters.node.checks.parts import Facts, lost
from pyrometer_kit.statefile import StateFile

FILE: Final = "checks.json"
VERSION: Final = 2
DAY_SECONDS: Final = 86_400.0
FORGOTTEN_SECONDS: Final = 7 * DAY_SECONDS
"""What is gone, or less than it was, for so long is so for good: as long as the alert NicLost misses a device."""
SOFTWARE: Final = ("mounts", "container_runtimes", "agents")
"""Kinds that people change without a screwdriver: what is gone for a day is gone for good."""
JUMP_SECONDS: Final = 60.0
"""A clock that moves by more against the time since the boot was set, not corrected."""


@dataclass(frozen=True)
class Kept:
    """The content of the file.

    Attributes:
        learned: by kind and identity, what was there for a whole day.
        candidate: by kind and identity, what was there at the latest look, and since when.
        gone: by kind and identity, since when something learned is gone.
        since: what these times count from, in seconds since the epoch.
        at: when the latest look was, in seconds since the epoch.
        uptime: and in seconds since the boot.
        stuck: processes in state D at the latest look, and when they were first seen so, in seconds since the boot.
    """

    learned: Facts = field(default_factory=dict)
    candidate: Mapping[str, Mapping[str, tuple[Any, float]]] = field(default_factory=dict)
    gone: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    since: float = 0.0
    at: float = 0.0
    uptime: float = 0.0
    stuck: Mapping[str, float] = field(default_factory=dict)

    def after(self, facts: Facts, *, stuck: Mapping[str, float], now: float, uptime: float) -> Kept:
        """Return what to keep after a look that found these facts at ``now``, ``uptime`` seconds after the boot.

        A kind that the look did not report is left as it is; each part of one that it did has a day of its own.
        """
        since = now if not self.at else self.since + self._jumped(now, uptime)
        time = now - since
        learned = {kind: dict(parts) for kind, parts in self.learned.items()}
        candidate, gone = dict(self.candidate), dict(self.gone)
        for kind, parts in facts.items():
            candidate[kind] = {
                name: (value, self._seen_since(kind, name, value, time)) for name, value in parts.items()
            }
            expected = learned.setdefault(kind, {})
            mature = {
                name: value
                for name, (value, first) in candidate[kind].items()
                if time - first >= _patience(kind, expected.get(name), value)
            }
            if not mature.keys() <= expected.keys():
                _forget_exchanged(expected, parts)
            expected.update(mature)
            before = self.gone.get(kind, {})
            gone[kind] = {name: before.get(name, time) for name in expected if name not in parts}
            for name, first in gone[kind].items():
                if time - first >= (DAY_SECONDS if kind in SOFTWARE else FORGOTTEN_SECONDS):
                    del expected[name]
        return Kept(
            {kind: parts for kind, parts in learned.items() if parts}, candidate, gone, since, now, uptime, stuck
        )

    def _seen_since(self, kind: str, name: str, value: Any, time: float) -> float:  # noqa: ANN401  a fact
        before = self.candidate.get(kind, {}).get(name)
        return before[1] if before is not None and before[0] == value else time

    def _jumped(self, now: float, uptime: float) -> float:
        """Return by how much the clock was set since the latest look; no time has passed where that isn't known."""
        if uptime < self.uptime:  # another boot, which only the clock has measured
            return min(0.0, now - self.at)
        jump = now - self.at - (uptime - self.uptime)
        return jump if abs(jump) > JUMP_SECONDS else 0.0


def _forget_exchanged(expected: dict[str, Any], parts: Mapping[str, Any]) -> None:
    """Forget the parts in whose place others have been for a day; numbers are of no place."""
    if all(isinstance(part, Mapping) for part in (*expected.values(), *parts.values())):
        missing = lost(expected, parts)
        for name in [name for name in expected if name not in parts and expected[name] not in missing]:
            del expected[name]


def _patience(kind: str, before: Any, value: Any) -> float:  # noqa: ANN401  a fact
    """Return for how many seconds a value has to be seen before it is expected: longer for one that is less."""
    less = isinstance(before, int | float) and isinstance(value, int | float) and value < before
    return FORGOTTEN_SECONDS if less and kind not in SOFTWARE else DAY_SECONDS


def load(folder: Path | None) -> Kept:
    """Return what the file holds; nothing where there is none, or none that can be used or that this user may read."""
    if folder is not None and not os.access(folder / FILE, os.R_OK):
        return Kept()
    return StateFile(folder, FILE).load(_decoded) or Kept()


def save(folder: Path | None, kept: Kept) -> None:
    """Replace the file.

    Raises:
        OSError: it can't be written.
    """
    StateFile(folder, FILE).save({"version": VERSION, **vars(kept)})


def _decoded(data: Mapping[str, Any]) -> Kept:
    stuck = {str(key): float(since) for key, since in data["stuck"].items()}
    if data["version"] == 1:  # facts were counts and names then: they are learned again, within a day
        return Kept(stuck=stuck)
    if data["version"] != VERSION:
        raise ValueError(f"version {data['version']!r} instead of {VERSION}")
    candidate = {
        kind: {name: (value, float(first)) for name, (value, first) in parts.items()}
        for kind, parts in data["candidate"].items()
    }
    gone = {kind: {name: float(first) for name, first in parts.items()} for kind, parts in data["gone"].items()}
    learned = {kind: dict(parts) for kind, parts in data["learned"].items()}
    since, at, uptime = (float(data[name]) for name in ("since", "at", "uptime"))
    return Kept(learned, candidate, gone, since, at, uptime, stuck)
