"""Time that rank 0 says it spent in checkpoints and evaluations, until it is found in the run's time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyrometer_exporters.cluster.ledger.facts import PartSample


@dataclass
class Claims:
    """A part's counter rises when the part ends; what it rose by is owed to the time before, wherever that was booked.

    Attributes:
        last: the latest value of each series, in ms.
        at: up to when samples have been taken in.
        owed: ms by part; below 0 where time was booked before the counter told it.
        known: the parts that this run tells of: for them tags say nothing more.
        risen: the parts whose counters rose in the latest scrape that was taken in.
    """

    last: dict[str, int] = field(default_factory=dict)
    at: int = 0
    owed: dict[str, int] = field(default_factory=lambda: {"checkpoint": 0, "eval": 0})
    known: set[str] = field(default_factory=set)
    risen: set[str] = field(default_factory=set)

    def take_in(self, samples: Sequence[PartSample], until: int, unknown_before: int) -> list[tuple[int, str]]:
        """Take in all samples up to ``until``, a scrape's time; the parts that began to rise, and when.

        A series that is there up to ``unknown_before``, when the ledger began, has a past that isn't the ledger's.
        """
        first = bisect_left(samples, self.at + 1, key=lambda sample: sample.at)
        end = bisect_left(samples, until + 1, key=lambda sample: sample.at)
        began = []
        for sample in samples[first:end]:
            if self._rose(sample, unknown_before):
                began += [] if sample.part in self.risen else [(sample.at, sample.part)]
                self.risen.add(sample.part)
            else:
                self.risen.discard(sample.part)
            self.at = sample.at
        return began

    def to_pay(self, samples: Sequence[PartSample], until: int) -> int:
        """What is owed, and what is still to be taken in up to ``until``."""
        latest = {sample.key: sample for sample in samples if self.at < sample.at <= until}
        rising = sum(max(0, sample.value - self.last.get(key, 0)) for key, sample in latest.items())
        return rising + sum(max(0, owed) for owed in self.owed.values())

    def pay(self, part: str, most: int) -> int:
        """Take what is owed of a part, at most so many ms."""
        paid = max(0, min(most, self.owed[part]))
        self.owed[part] -= paid
        return paid

    def encoded(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "last": self.last, "at": self.at, "owed": self.owed, "known": sorted(self.known),
            "risen": sorted(self.risen),
        }  # fmt: skip

    def _rose(self, sample: PartSample, unknown_before: int) -> bool:
        before = self.last.get(sample.key, sample.value if sample.at <= unknown_before else 0)
        # Below the value before it is another process's, which began at 0.
        rise = sample.value - before if sample.value >= before else sample.value
        self.last[sample.key] = sample.value
        self.owed[sample.part] += rise
        if sample.value:
            self.known.add(sample.part)
        return rise > 0


def decoded(data: Mapping[str, Any]) -> Claims:
    """What was :meth:`Claims.encoded`. Raises ValueError, KeyError or TypeError."""
    return Claims(
        last={str(key): int(value) for key, value in data["last"].items()},
        at=int(data["at"]),
        owed={part: int(data["owed"][part]) for part in ("checkpoint", "eval")},
        known=set(map(str, data["known"])),
        risen=set(map(str, data["risen"])),
    )
