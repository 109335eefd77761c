"""Limit how often each kind of file is read: a firmware command per file is too much for every scrape.

On mlx5 each file of ``counters/`` is a firmware command, uncached: 22 per port (drivers/infiniband/hw/mlx5/mad.c). The
link's state is read every 5 s, other counters every 30 s, temperatures every 60 s, identities every 300 s. Scrapes that
are more frequent, or come from two places, get the last value read; its age is exported.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

T = TypeVar("T")

# Scrapes jitter: one that comes a tenth of the interval early reads as well.
SLACK = 0.9


@dataclass(frozen=True, eq=False)
class Tier:
    """``name`` is the label, ``seconds`` how long a value may be served again."""

    name: str
    seconds: float


LINK = Tier("5s", 5.0)
COUNTERS = Tier("30s", 30.0)
TEMPERATURES = Tier("60s", 60.0)
IDENTITY = Tier("300s", 300.0)
TIERS = (LINK, COUNTERS, TEMPERATURES, IDENTITY)


class _Value:
    """``at``: when it was read; ``due``: when to read it again; ``round``: the last round that asked for it."""

    __slots__ = ("at", "due", "round", "value")

    def __init__(self, at: float, due: float, round_: int, value: Any) -> None:  # noqa: ANN401  of any group of files
        self.at, self.due, self.round, self.value = at, due, round_, value


class TierCache:
    """The values of one device, by group of files, until the tier's interval is over.

    ``early`` is the fraction of the interval by which the second read comes early. It differs between devices, so that
    their reads spread over scrapes: otherwise one scrape in two would read the counters of all.

    Not thread-safe: it belongs to the one thread that reads its device.
    """

    def __init__(self, early: float = 0.0, *, every_time: bool = False) -> None:
        self._share = 0.0 if every_time else SLACK
        self._first_share = self._share * (1 - early)
        self._values: dict[Tier, dict[Hashable, _Value]] = {tier: {} for tier in TIERS}
        self._oldest: dict[Tier, float] = {}
        """When the oldest value of each tier was read; computed on demand."""
        self._count = self._asked = 0
        self._round = 0
        self.now = 0.0

    def begin(self, now: float) -> None:
        """Begin a read of the device at the monotonic time ``now``."""
        self.now = now
        self._round += 1
        self._asked = 0

    def get(self, tier: Tier, key: Hashable, read: Callable[[], T]) -> T:
        """Return the cached value, or that of ``read`` once the tier's interval is over. Exceptions are not cached."""
        values = self._values[tier]
        cached = values.get(key)
        if cached is None or self.now >= cached.due:
            cached = self._read(tier, key, read)
        if cached.round != self._round:
            cached.round = self._round
            self._asked += 1
        return cast("T", cached.value)  # the type that ``read`` returned under this key

    def end(self) -> dict[Tier, float]:
        """End the read: drop values it didn't ask for, such as a removed port's.

        Return the age of the oldest value of each tier, in seconds.
        """
        if self._asked != self._count:
            for tier, values in self._values.items():
                self._values[tier] = {key: value for key, value in values.items() if value.round == self._round}
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
        round_ = 0 if before is None else before.round
        cached = values[key] = _Value(self.now, self.now + share * tier.seconds, round_, value)
        self._count += 1
        return cached

    def _oldest_of(self, tier: Tier) -> float:
        if tier not in self._oldest:
            self._oldest[tier] = min(value.at for value in self._values[tier].values())
        return self._oldest[tier]

    def clear(self) -> None:
        """Drop all cached values: the device was replaced."""
        for values in self._values.values():
            values.clear()
        self._oldest.clear()
        self._count = self._asked = 0
