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


class _Value:
    """``at``: when it was read; ``due``: when to read it again; ``look``: which was the last to ask for it."""

    __slots__ = ("at", "due", "look", "value")

    def __init__(self, at: float, due: float, look: int, value: Any) -> None:  # noqa: ANN401  of any group of files
        self.at, self.due, self.look, self.value = at, due, look, value


class TierCache:
    """What one device gave, by group of files, until the tier's interval is over.

    ``early`` is by what part of the interval the second read comes before its time. Devices part ways by it: else one
    scrape in two would read the counters of all, and one in twenty all that there is.

    Not thread-safe: it belongs to the one worker that reads its device.
    """

    def __init__(self, early: float = 0.0, *, every_time: bool = False) -> None:
        self._share = 0.0 if every_time else SLACK
        self._first_share = self._share * (1 - early)
        self._values: dict[Tier, dict[Hashable, _Value]] = {tier: {} for tier in TIERS}
        self._oldest: dict[Tier, float] = {}
        """When the oldest value of a tier was read, as far as that is known."""
        self._count = self._asked = 0
        self._look = 0
        self.now = 0.0

    def begin(self, now: float) -> None:
        """A look at the device begins at the monotonic time ``now``."""
        self.now = now
        self._look += 1
        self._asked = 0

    def get(self, tier: Tier, key: Hashable, read: Callable[[], T]) -> T:
        """What ``read`` gives, or gave within the tier's interval. An exception is not kept."""
        values = self._values[tier]
        found = values.get(key)
        if found is None or self.now >= found.due:
            found = self._read(tier, key, read)
        if found.look != self._look:
            found.look = self._look
            self._asked += 1
        return cast("T", found.value)  # what ``read`` gave under this key

    def end(self) -> dict[Tier, float]:
        """The look is over: forget what it did not ask for, such as a port that went away.

        The age of the oldest value of each tier, in seconds.
        """
        if self._asked != self._count:
            for tier, values in self._values.items():
                self._values[tier] = {key: value for key, value in values.items() if value.look == self._look}
            self._count = sum(map(len, self._values.values()))
            self._oldest.clear()
        return {tier: self.now - self._oldest_of(tier) for tier, values in self._values.items() if values}

    def _read(self, tier: Tier, key: Hashable, read: Callable[[], object]) -> _Value:
        values = self._values[tier]
        before = values.pop(key, None)
        self._count -= before is not None
        self._oldest.pop(tier, None)
        value = read()
        share = self._first_share if before is None else self._share
        look = 0 if before is None else before.look
        found = values[key] = _Value(self.now, self.now + share * tier.seconds, look, value)
        self._count += 1
        return found

    def _oldest_of(self, tier: Tier) -> float:
        if tier not in self._oldest:
            self._oldest[tier] = min(value.at for value in self._values[tier].values())
        return self._oldest[tier]

    def clear(self) -> None:
        """The device is another one now."""
        for values in self._values.values():
            values.clear()
        self._oldest.clear()
        self._count = self._asked = 0
