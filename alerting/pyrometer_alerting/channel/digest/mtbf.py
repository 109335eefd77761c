"""Mean time between failures with its exact interval for a Poisson count (Garwood, 1936).

With n failures in T hours the mean time is T / n. Its interval is T / high to T / low, where low and high are the means
of the two Poisson distributions under which n or more, and n or fewer, failures each have a probability of half of one
minus the confidence. Without a failure only the lower bound is known.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

CONFIDENCE = 0.9


@dataclass(frozen=True)
class Mtbf:
    """Hours between failures; without a failure `hours` is None and `high` infinite."""

    failures: int
    observed: float
    hours: float | None
    low: float
    high: float


def mtbf(failures: int, observed: float) -> Mtbf:
    """Compute the MTBF from a number of failures in this many observed hours."""
    least, most = poisson_interval(failures)
    return Mtbf(
        failures=failures,
        observed=observed,
        hours=observed / failures if failures else None,
        low=observed / most,
        high=observed / least if least > 0 else math.inf,
    )


@lru_cache(maxsize=1024)  # nodes, GPUs and ports have often equally many
def poisson_interval(count: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return (lowest, highest) mean of a Poisson distribution that is compatible with `count`."""
    tail = (1 - confidence) / 2
    most = _root(lambda mean: _at_most(count, mean) - tail, count)
    least = _root(lambda mean: tail - (1 - _at_most(count - 1, mean)), count) if count else 0.0
    return least, most


def _at_most(count: int, mean: float) -> float:
    """Return P(X <= count) of a Poisson distribution with this mean."""
    if count < 0:
        return 0.0
    if mean <= 0:
        return 1.0
    log = math.log(mean)
    return min(math.fsum([math.exp(k * log - mean - math.lgamma(k + 1)) for k in range(count + 1)]), 1.0)


def _root(falling: Callable[[float], float], count: int) -> float:
    """Return the zero of a falling function, by bisection."""
    low, high = 0.0, 10.0 + 3.0 * count
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if falling(middle) > 0 else (low, middle)
    return (low + high) / 2
