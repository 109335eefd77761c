"""Limit how often each kind of file is read: a firmware command per file is too much for every scrape.

On mlx5 each file of ``counters/`` is a firmware command, uncached: 22 per port (drivers/infiniband/hw/mlx5/mad.c). The
link's state is read every 5 s, other counters every 30 s, temperatures every 60 s, identities every 300 s. Scrapes that
are more frequent, or come from two places, get the last value read; its age is exported.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar, cast

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


class _Value(NamedTuple):
    at: float
    due: float
    value: Any


class TierCache:
    """The values of one device, by tier and group of files, until the tier's interval is over.

    Not thread-safe: it belongs to the one thread that reads its device.
    """

    def __init__(self, *, every_time: bool = False) -> None:
        self._share = 0.0 if every_time else SLACK
        self._before: dict[tuple[Tier, Hashable], _Value] = {}
        self._values: dict[tuple[Tier, Hashable], _Value] = {}
        self._now = 0.0

    def begin(self, now: float) -> None:
        """Begin a read of the device at the monotonic time ``now``; values it does not ask for are dropped."""
        self._now = now
        self._before, self._values = self._values, {}

    def get(self, tier: Tier, key: Hashable, read: Callable[[], T]) -> T:
        """Return the cached value, or that of ``read`` once the tier's interval is over. Exceptions are not cached."""
        place = tier, key
        cached = self._values.get(place) or self._before.get(place)
        if cached is None or self._now >= cached.due:
            cached = _Value(self._now, self._now + self._share * tier.seconds, read())
        self._values[place] = cached
        return cast("T", cached.value)  # the type that ``read`` returned under this key

    def ages(self) -> dict[Tier, float]:
        """Return the age of the oldest value of each tier, in seconds."""
        oldest: dict[Tier, float] = {}
        for (tier, _), value in self._values.items():
            oldest[tier] = min(value.at, oldest.get(tier, value.at))
        return {tier: self._now - oldest[tier] for tier in TIERS if tier in oldest}

    def clear(self) -> None:
        """Drop all cached values: the device was replaced."""
        self._before, self._values = {}, {}
