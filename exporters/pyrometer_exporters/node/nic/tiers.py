"""How often each kind of file is read: a firmware command per file is too much for every scrape.

On mlx5 each file of ``counters/`` is a firmware command, uncached: 22 per port (drivers/infiniband/hw/mlx5/mad.c). What
tells of a lost link is read every 5 s, the other counters every 30 s, temperatures every 60 s, identities every 300 s.
Whoever scrapes more often, or from two places, gets what was read last; its age is exported.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

T = TypeVar("T")

# Scrapes come a little early or late: one that is a tenth of the interval early reads as well.
SLACK = 0.9


@dataclass(frozen=True, eq=False)
class Tier:
    """``name`` is its label, ``seconds`` how long what was read may be served again."""

    name: str
    seconds: float


LINK = Tier("5s", 5.0)
COUNTERS = Tier("30s", 30.0)
TEMPERATURES = Tier("60s", 60.0)
IDENTITY = Tier("300s", 300.0)
TIERS = (LINK, COUNTERS, TEMPERATURES, IDENTITY)


class Kept:
    """What one device gave, by group of files, until the tier's interval is over.

    ``early`` is by what part of the interval the second read comes before its time. Devices part ways by it: else one
    scrape in two would read the counters of all, and one in twenty all that there is.

    Not thread-safe: it belongs to the one worker that reads its device.
    """

    def __init__(self, early: float = 0.0, *, every_time: bool = False) -> None:
        self._share = 0.0 if every_time else SLACK
        self._first_share = self._share * (1 - early)
        self._values: dict[tuple[Tier, Hashable], tuple[float, float, Any]] = {}
        """When each was read, when to read it again, and what it was."""
        self._asked: set[tuple[Tier, Hashable]] = set()
        self.now = 0.0

    def begin(self, now: float) -> None:
        """A look at the device begins at the monotonic time ``now``."""
        self.now = now
        self._asked.clear()

    def get(self, tier: Tier, key: Hashable, read: Callable[[], T]) -> T:
        """What ``read`` gives, or gave within the tier's interval. An exception is not kept."""
        found = self._values.get((tier, key))
        self._asked.add((tier, key))
        if found is not None and self.now < found[1]:
            return cast("T", found[2])  # what ``read`` gave under this key
        self._values.pop((tier, key), None)
        value = read()
        share = self._first_share if found is None else self._share
        self._values[tier, key] = (self.now, self.now + share * tier.seconds, value)
        return value

    def ages(self) -> dict[Tier, float]:
        """The age of the oldest value of each tier that this look gave, in seconds."""
        oldest: dict[Tier, float] = {}
        for tier, key in self._asked:
            if (tier, key) in self._values:
                age = self.now - self._values[tier, key][0]
                oldest[tier] = max(age, oldest.get(tier, 0.0))
        return oldest

    def end(self) -> None:
        """The look is over: forget what it did not ask for, such as a port that went away."""
        for key in self._values.keys() - self._asked:
            del self._values[key]

    def clear(self) -> None:
        """The device is another one now."""
        self._values.clear()
