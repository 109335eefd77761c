"""A run's book: every millisecond since the run began, booked once, under one state."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyrometer_exporters.cluster.ledger import claims
from pyrometer_exporters.cluster.ledger.claims import Claims
from pyrometer_exporters.cluster.ledger.facts import SAME_MS

USEFUL, REWORK, CHECKPOINT, EVAL, INIT, DOWN, OTHER = STATES = (
    "useful", "rework", "checkpoint", "eval", "init", "down", "other",
)  # fmt: skip
ALIVE, DEAD, CLOSED = "alive", "dead", "closed"

# The usual length of a step: enough steps that two checkpoints among them don't matter.
TYPICAL_STEPS = 31
CHECKPOINTS_KEPT = 9
HOUR_MS = 3_600_000
HOURS_KEPT = 25


@dataclass
class Book:
    """Where a run stands. All times in ms since the epoch, all lengths in ms.

    Attributes:
        started: when the run began, or the ledger saw it first.
        settled: up to when its time is booked: what the states sum to is ``settled - started``.
        condition: of the present process: ALIVE, DEAD (seen dead), or CLOSED (ended well, or given up).
        began: when the present process began, at the latest.
        life: the same, exactly; None where nobody says.
        starting: whether the present process has yet to finish its first step.
        after: when the process before was last known to live: the present one began later.
        alive: when it was last seen alive.
        high: the highest step ever finished: one at or below it is done again.
        number: the latest step of the present process; None before the first.
        unknown_before: counters that were there by then have a past that isn't the ledger's.
        restarts: processes after the first.
        saved: at each of the latest checkpoints, how long the run had trained by then.
        saved_at: when the latest was finished.
        tokens: trained on, by steps that were not done again.
        hours: hourly, when and with how many tokens, for the estimated end.
    """

    started: int
    settled: int
    unknown_before: int = 0
    condition: str = ALIVE
    began: int = 0
    life: int | None = None
    after: int = 0
    attempt: str = ""
    starting: bool = False
    alive: int = 0
    high: int = -1
    number: int | None = None
    restarts: int = 0
    lengths: dict[str, int] = field(default_factory=lambda: dict.fromkeys(STATES, 0))
    steps: dict[str, int] = field(default_factory=lambda: {USEFUL: 0, REWORK: 0})
    typical_lengths: list[int] = field(default_factory=list)
    claims: Claims = field(default_factory=Claims)
    saved: list[int] = field(default_factory=list)
    saved_at: int = 0
    saving: bool = False
    tags_checkpoints: bool = False
    tokens: float = 0.0
    tokens_per_step: float = 0.0
    hours: list[tuple[int, float]] = field(default_factory=list)

    def add(self, state: str, until: int) -> int:
        """Book the time from ``settled`` to ``until``; how much that was. Nothing is booked twice."""
        length = max(0, until - self.settled)
        self.lengths[state] += length
        self.settled += length
        return length

    def is_present(self, life: int | None) -> bool:
        """Whether a process that began then may be the present one; None where nobody says."""
        if life is None:
            return True
        return life >= self.after if self.life is None else abs(life - self.life) < SAME_MS

    @property
    def trained(self) -> int:
        """Time in steps, those done again included."""
        return self.lengths[USEFUL] + self.lengths[REWORK]

    @property
    def unsaved(self) -> int:
        """Time in steps since the latest checkpoint: what a crash now would lose."""
        return self.trained - (self.saved[-1] if self.saved else 0)

    @property
    def checkpoint_interval(self) -> int | None:
        """The usual time in steps between two checkpoints; None before there were three."""
        between = [later - sooner for sooner, later in zip(self.saved, self.saved[1:], strict=False)]
        return round(statistics.median(between)) if len(between) >= 2 else None

    @property
    def typical(self) -> int | None:
        """The usual length of a step; None before the first."""
        return round(statistics.median(self.typical_lengths)) if self.typical_lengths else None

    def seems_typical(self, length: int) -> None:
        """A step without anything special took so long."""
        self.typical_lengths.append(length)
        del self.typical_lengths[:-TYPICAL_STEPS]

    def save_point(self, at: int) -> None:
        """A checkpoint was finished."""
        self.saved.append(self.trained)
        del self.saved[:-CHECKPOINTS_KEPT]
        self.saved_at = at

    def trained_on(self, steps: int, per_step: float | None) -> None:
        """So many steps were taken for the first time."""
        if per_step is not None:
            self.tokens_per_step = per_step
        self.tokens += steps * self.tokens_per_step
        if not self.hours or self.settled - self.hours[-1][0] >= HOUR_MS:
            self.hours.append((self.settled, self.tokens))
            del self.hours[:-HOURS_KEPT]

    def encoded(self) -> dict[str, Any]:
        """As JSON, for :func:`decoded`."""
        return {**vars(self), "claims": self.claims.encoded()}


def decoded(data: Mapping[str, Any]) -> Book:
    """The book that was :meth:`Book.encoded`. Raises ValueError, KeyError or TypeError."""
    whole = ("started", "settled", "unknown_before", "began", "after", "alive", "high", "restarts", "saved_at")
    return Book(
        **{name: int(data[name]) for name in whole},
        life=None if data["life"] is None else int(data["life"]),
        number=None if data["number"] is None else int(data["number"]),
        condition=str(data["condition"]),
        attempt=str(data["attempt"]),
        starting=bool(data["starting"]),
        lengths={state: int(data["lengths"][state]) for state in STATES},
        steps={state: int(data["steps"][state]) for state in (USEFUL, REWORK)},
        typical_lengths=[int(length) for length in data["typical_lengths"]],
        claims=claims.decoded(data["claims"]),
        saved=[int(trained) for trained in data["saved"]],
        saving=bool(data["saving"]),
        tags_checkpoints=bool(data["tags_checkpoints"]),
        tokens=float(data["tokens"]),
        tokens_per_step=float(data["tokens_per_step"]),
        hours=[(int(at), float(tokens)) for at, tokens in data["hours"]],
    )
