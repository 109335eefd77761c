"""A cause while its score is being weighed: what speaks for it, what against, and how well its time fits the drop."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from pyrometer_alerting.model.incident import Cause, Shape, part_of
from pyrometer_alerting.model.text import duration

LATE_SECONDS = 15.0  # three scrapes of 5 s: a cause seen to begin later than that did not start the drop
QUIET_SECONDS = 3.0
EARLY_SECONDS = 300.0
STOPPED_SECONDS = 45.0  # three scrapes of 15 s without another increment
NOBODY = "no single part"


@dataclass
class Suspect:
    """`kind` is the family of the trouble (throttle, link, xid, pcie, clock, rank, gc, data, checkpoint, host)."""

    labels: dict[str, str]
    cause: str
    score: float
    onset: float
    evidence: list[str] = field(default_factory=list)
    against: list[str] = field(default_factory=list)
    last: float | None = None  # when it was last seen to go on
    pause: float = STOPPED_SECONDS
    kind: str = ""

    def doubt(self, factor: float, reason: str) -> None:
        """Weigh it less, and say why."""
        self.score *= factor
        self.against.append(reason)

    def confirm(self, factor: float, reason: str) -> None:
        """Weigh it more, and say why."""
        self.score *= factor
        self.evidence.append(reason)

    def settled(self) -> Cause:
        """The cause as it is shown; without labels nobody in particular is meant."""
        return Cause(
            part=part_of(self.labels) or NOBODY,
            cause=self.cause,
            evidence=tuple(self.evidence),
            against=tuple(self.against),
            since=self.onset,
            score=round(self.score, 1),
            labels=self.labels or None,
        )


def weigh_time(suspect: Suspect, onset: float, now: float) -> None:
    """Agreement in time: a cause begins before or with its effect, not long before, and goes on with it."""
    if math.isnan(suspect.onset):
        return
    lag = suspect.onset - onset
    if lag > LATE_SECONDS:
        suspect.doubt(0.35, f"began {duration(lag)} after the drop")
    elif suspect.last is not None and onset - suspect.last > LATE_SECONDS:
        suspect.doubt(0.25, f"ended {duration(onset - suspect.last)} before the drop")
    elif suspect.last is not None and onset - suspect.last > QUIET_SECONDS:
        suspect.doubt(0.95, f"not seen again since {duration(onset - suspect.last)} before the drop")
    elif lag < -EARLY_SECONDS:
        suspect.doubt(0.6, f"began {duration(-lag)} before the drop")
    else:
        suspect.score *= 1.2
    if suspect.last is not None and now - suspect.last > suspect.pause:
        suspect.doubt(0.4, f"stopped {duration(now - suspect.last)} ago")


# Which families of trouble draw such a curve, and which do not (the table of causes in Imbue's 70B report; MegaScale
# for garbage collection; SmolLM3 for storage). What stands in neither column is left as it is.
_SPEAKS_FOR: dict[str, frozenset[str]] = {
    "tenth_from_start": frozenset({"link", "pcie"}),
    "third_from_start": frozenset({"pcie", "link"}),
    "low_from_start": frozenset({"link", "pcie", "clock", "throttle", "host", "rank"}),
    "regular_stalls": frozenset({"checkpoint"}),
    "rare_stalls": frozenset({"host", "data", "link"}),
    "stall_burst": frozenset({"link"}),
    "gradual_decline": frozenset({"gc"}),
    "frequent_dips": frozenset({"throttle", "link"}),
    "noisy": frozenset({"link", "gc"}),
    "step_down": frozenset({"throttle", "clock", "pcie", "link", "rank", "host"}),
    "spell": frozenset({"throttle", "clock", "link", "rank", "host", "data"}),
    "stopped": frozenset({"xid", "link"}),
}
_SPEAKS_AGAINST: dict[str, frozenset[str]] = {
    "tenth_from_start": frozenset({"throttle", "gc", "data", "checkpoint"}),
    "third_from_start": frozenset({"throttle", "gc", "checkpoint"}),
    "low_from_start": frozenset({"gc", "checkpoint"}),
    "regular_stalls": frozenset({"throttle", "clock", "pcie"}),
    "rare_stalls": frozenset({"clock", "pcie", "gc"}),
    "stall_burst": frozenset({"gc", "clock", "pcie"}),
    "gradual_decline": frozenset({"checkpoint", "pcie"}),
    "frequent_dips": frozenset({"checkpoint", "pcie"}),
    "noisy": frozenset({"clock", "pcie", "checkpoint"}),
    "step_down": frozenset({"gc", "checkpoint"}),
    "spell": frozenset({"gc"}),
    "stopped": frozenset({"throttle", "gc", "clock"}),
}


def weigh_shape(suspect: Suspect, shape: Shape | None) -> None:
    """Whether the curve is one that such a trouble draws; only as far as the curve's kind is sure."""
    if shape is None or shape.kind in ("unknown", "steady", "daily_wave"):
        return
    named = shape.kind.replace("_", " ")
    if suspect.kind in _SPEAKS_FOR.get(shape.kind, frozenset()):
        suspect.score *= 1 + 0.15 * shape.confidence
    elif suspect.kind in _SPEAKS_AGAINST.get(shape.kind, frozenset()):
        # A quarter at most: what is measured on a part weighs more than what a curve looks like.
        suspect.doubt(1 - 0.25 * shape.confidence, f"the MFU curve ({named}) is not what this does")
