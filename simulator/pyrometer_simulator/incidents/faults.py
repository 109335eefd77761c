"""Make a Prometheus slow and unreliable: looks take longer or have gaps, which may make an answer late, never wrong."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from pyrometer_kit.prometheus import QUERY_SECONDS, Prometheus, PrometheusError, Series


class Settable(Protocol):
    """A clock that is moved by hand."""

    now: float


@dataclass(frozen=True)
class Faults:
    """How a Prometheus is disturbed.

    Attributes:
        delay: mean seconds that a query takes, drawn from an exponential distribution; 0 for none.
        failures: the share of queries that get no answer, 0 to 1.
    """

    delay: float = 0.0
    failures: float = 0.0


class DisturbedPrometheus:
    """A Prometheus whose answers come late or not at all, on a clock that is moved by hand."""

    def __init__(self, prometheus: Prometheus, clock: Settable, faults: Faults, seed: int = 0) -> None:
        self._prometheus, self._clock, self._faults = prometheus, clock, faults
        self._random = random.Random(seed)
        self.failed = 0

    def instant(self, query: str, at: float) -> list[Series]:
        """Answer a query late.

        Raises:
            PrometheusError: no answer.
        """
        return self._late(lambda: self._prometheus.instant(query, at))

    def range(self, query: str, start: float, end: float, step: float) -> list[Series]:
        """Answer a query over a stretch late.

        Raises:
            PrometheusError: no answer.
        """
        return self._late(lambda: self._prometheus.range(query, start, end, step))

    def _late(self, ask: Callable[[], list[Series]]) -> list[Series]:
        faults = self._faults
        takes = self._random.expovariate(1 / faults.delay) if faults.delay else 0.0
        fails = self._random.random() < faults.failures
        fails = fails or takes > QUERY_SECONDS
        answer = [] if fails else ask()
        self._clock.now += min(takes, QUERY_SECONDS)
        if fails:
            self.failed += 1
            raise PrometheusError(f"no answer within {QUERY_SECONDS:.0f} s", "deadline")
        return answer
