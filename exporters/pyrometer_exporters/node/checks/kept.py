"""Keep for the next look what a node has on a healthy day, and which processes were stuck since when.

The file is ``checks.json`` in the state folder. Where it can't be written, nothing is learned and nothing else changes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pyrometer_kit.statefile import StateFile

FILE: Final = "checks.json"
DAY_SECONDS: Final = 86_400.0


@dataclass(frozen=True)
class Kept:
    """The content of the file.

    Attributes:
        learned: facts of the node's last healthy day: a whole day in which no critical check failed and they stayed.
        candidate: facts that may become these.
        since: when those were first seen, in seconds since the epoch.
        stuck: processes in state D at the latest look, and when they were first seen so.
    """

    learned: Mapping[str, Any] = field(default_factory=dict)
    candidate: Mapping[str, Any] = field(default_factory=dict)
    since: float = 0.0
    stuck: Mapping[str, float] = field(default_factory=dict)

    def after(self, facts: Mapping[str, Any], *, healthy: bool, stuck: Mapping[str, float], now: float) -> Kept:
        """Return what to keep after a look at the time ``now`` that found these facts."""
        if not healthy:
            return Kept(self.learned, {}, now, stuck)
        same = all(self.candidate.get(key, value) == value for key, value in facts.items())
        candidate = {**self.candidate, **facts} if same else dict(facts)
        since = self.since if same and self.candidate and self.since <= now else now
        learned = {**self.learned, **candidate} if now - since >= DAY_SECONDS else self.learned
        return Kept(learned, candidate, since, stuck)


def load(folder: Path | None) -> Kept:
    """Return what the file holds; nothing where there is none, or none that can be used or that this user may read."""
    if folder is not None and not os.access(folder / FILE, os.R_OK):
        return Kept()
    return StateFile(folder, FILE, version=1).load(_decoded) or Kept()


def save(folder: Path | None, kept: Kept) -> None:
    """Replace the file.

    Raises:
        OSError: it can't be written.
    """
    StateFile(folder, FILE, version=1).save(vars(kept))


def _decoded(data: Mapping[str, Any]) -> Kept:
    stuck = {str(key): float(since) for key, since in data["stuck"].items()}
    return Kept(dict(data["learned"]), dict(data["candidate"]), float(data["since"]), stuck)
