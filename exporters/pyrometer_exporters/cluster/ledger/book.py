"""A run's book: every millisecond since the run began, booked once, under one state."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pyrometer_exporters.cluster.ledger import pending_parts
from pyrometer_exporters.cluster.ledger.facts import SAME_MS
from pyrometer_exporters.cluster.ledger.pending_parts import PendingParts

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
    """The state of a run's accounts. All times in ms since the epoch, all lengths in ms.

    Attributes:
        started: when the run began, or was first seen by the ledger.
        settled: end of the booked time: the states sum to ``settled - started``.
        condition: of the current process: ALIVE, DEAD (seen dead), or CLOSED (ended well, or given up).
        began: the latest time at which the current process can have begun.
        life: its exact start; None if unknown.
        starting: True until the current process has finished its first step.
        after: when the previous process was last seen alive: the current one began later.
        alive: when it was last seen alive.
        high: the highest step ever finished: one at or below it is rework.
        number: the latest step of the current process; None before the first.
        unknown_before: counters that existed by then also count time before the ledger began.
        restarts: processes after the first.
        saved: trained time at each of the latest checkpoints.
        saved_at: when the latest checkpoint was finished.
        tokens: trained on by useful steps.
        hours: an hourly pair of time and tokens, for the estimated end.
        user: whose job it is; empty if unknown.
        lineage: the first of the jobs that follow each other as one run; its own before there is another.
        held_until: nothing is booked before this time (of the ledger's clock).
        continued: True once another job has continued this one.
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
    pending_parts: PendingParts = field(default_factory=PendingParts)
    saved: list[int] = field(default_factory=list)
    saved_at: int = 0
    saving: bool = False
    tags_checkpoints: bool = False
    tokens: float = 0.0
    tokens_per_step: float = 0.0
    hours: list[tuple[int, float]] = field(default_factory=list)
    user: str = ""
    lineage: str = ""
    held_until: int = 0
    continued: bool = False

    def successor(self) -> Book:
        """Return the book of the job that continues the run: what was reached stays, the counters begin at 0."""
        return replace(
            decoded(self.encoded()),
            started=self.settled,
            condition=DEAD if self.condition == CLOSED else self.condition,
            restarts=0,
            lengths=dict.fromkeys(STATES, 0),
            steps={USEFUL: 0, REWORK: 0},
            saved=[at - self.trained for at in self.saved],
        )

    def add(self, state: str, until: int) -> int:
        """Book the time from ``settled`` to ``until`` and return its length; nothing is booked twice."""
        length = max(0, until - self.settled)
        self.lengths[state] += length
        self.settled += length
        return length

    def is_present(self, life: int | None) -> bool:
        """Return whether a process with this start (None if unknown) may be the current one."""
        if life is None:
            return True
        return life >= self.after if self.life is None else abs(life - self.life) < SAME_MS

    @property
    def trained(self) -> int:
        """The time in steps, rework included."""
        return self.lengths[USEFUL] + self.lengths[REWORK]

    @property
    def unsaved(self) -> int:
        """The time in steps since the latest checkpoint, which a crash now would lose."""
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

    def add_typical_length(self, length: int) -> None:
        """Take in the length of an ordinary step."""
        self.typical_lengths.append(length)
        del self.typical_lengths[:-TYPICAL_STEPS]

    def save_point(self, at: int) -> None:
        """Record a finished checkpoint."""
        self.saved.append(self.trained)
        del self.saved[:-CHECKPOINTS_KEPT]
        self.saved_at = at

    def trained_on(self, steps: int, per_step: float | None) -> None:
        """Count tokens of steps taken for the first time."""
        if per_step is not None:
            self.tokens_per_step = per_step
        self.tokens += steps * self.tokens_per_step
        if not self.hours or self.settled - self.hours[-1][0] >= HOUR_MS:
            self.hours.append((self.settled, self.tokens))
            del self.hours[:-HOURS_KEPT]

    def encoded(self) -> dict[str, Any]:
        """Return the book as JSON, for :func:`decoded`."""
        plain = {name: value for name, value in vars(self).items() if name != "pending_parts"}
        return {**plain, "claims": self.pending_parts.encoded()}


def decoded(data: Mapping[str, Any]) -> Book:
    """Return the book that :meth:`Book.encoded` gave.

    Raises:
        ValueError, KeyError, TypeError: The data is not such a book.
    """
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
        pending_parts=pending_parts.decoded(data["claims"]),
        saved=[int(trained) for trained in data["saved"]],
        saving=bool(data["saving"]),
        tags_checkpoints=bool(data["tags_checkpoints"]),
        tokens=float(data["tokens"]),
        tokens_per_step=float(data["tokens_per_step"]),
        hours=[(int(at), float(tokens)) for at, tokens in data["hours"]],
        user=str(data.get("user", "")),
        lineage=str(data.get("lineage", "")),
        held_until=int(data.get("held_until", 0)),
        continued=bool(data.get("continued")),
    )
