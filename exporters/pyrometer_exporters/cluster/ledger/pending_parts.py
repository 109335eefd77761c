"""Time that rank 0 reported for checkpoints and evaluations and that is not yet booked in the run's time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyrometer_exporters.cluster.ledger.facts import PartSample


@dataclass
class PendingParts:
    """Reported minus booked time of each part; a part's counter rises when the part ends, so its time lies before that.

    Attributes:
        last: the latest value of each series, in ms.
        at: time of the latest sample taken in.
        owed: ms by part; below 0 if time was booked before the counter rose.
        known: the parts that this run reports: their tags are ignored.
        risen: the parts whose counters rose in the latest scrape.
    """

    last: dict[str, int] = field(default_factory=dict)
    at: int = 0
    owed: dict[str, int] = field(default_factory=lambda: {"checkpoint": 0, "eval": 0})
    known: set[str] = field(default_factory=set)
    risen: set[str] = field(default_factory=set)

    def take_in(self, samples: Sequence[PartSample], until: int, unknown_before: int) -> list[tuple[int, str]]:
        """Take in all samples up to a scrape's time, and return when which parts began to rise.

        The first value of a series that exists by ``unknown_before`` is no rise: it is older than the ledger.
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
        """Return the owed time in ms, including samples up to ``until`` that are not yet taken in."""
        latest = {sample.key: sample for sample in samples if self.at < sample.at <= until}
        rising = sum(max(0, sample.value - self.last.get(key, 0)) for key, sample in latest.items())
        return rising + sum(max(0, owed) for owed in self.owed.values())

    def pay(self, part: str, most: int) -> int:
        """Reduce the owed time of a part by at most ``most`` ms, and return by how much."""
        paid = max(0, min(most, self.owed[part]))
        self.owed[part] -= paid
        return paid

    def encoded(self) -> dict[str, Any]:
        """Return the state as JSON, for :func:`decoded`."""
        return {
            "last": self.last, "at": self.at, "owed": self.owed, "known": sorted(self.known),
            "risen": sorted(self.risen),
        }  # fmt: skip

    def _rose(self, sample: PartSample, unknown_before: int) -> bool:
        before = self.last.get(sample.key, sample.value if sample.at <= unknown_before else 0)
        # A lower value than before is another process's, which began at 0.
        rise = sample.value - before if sample.value >= before else sample.value
        self.last[sample.key] = sample.value
        self.owed[sample.part] += rise
        if sample.value:
            self.known.add(sample.part)
        return rise > 0


def decoded(data: Mapping[str, Any]) -> PendingParts:
    """Return what :meth:`PendingParts.encoded` gave.

    Raises:
        ValueError, KeyError, TypeError: The data is not such a state.
    """
    return PendingParts(
        last={str(key): int(value) for key, value in data["last"].items()},
        at=int(data["at"]),
        owed={part: int(data["owed"][part]) for part in ("checkpoint", "eval")},
        known=set(map(str, data["known"])),
        risen=set(map(str, data["risen"])),
    )
