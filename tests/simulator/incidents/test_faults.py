"""A Prometheus that is slow or fails: the clock goes on meanwhile, and nothing is answered that was not asked."""

from __future__ import annotations

import contextlib

import pytest

from pyrometer_kit.prometheus import QUERY_SECONDS, PrometheusError, Series
from pyrometer_simulator.incidents.faults import DisturbedPrometheus, Faults
from pyrometer_simulator.incidents.watch import VirtualClock

ANSWER = [Series({}, ((1.0, 2.0),))]


class Ready:
    """Answers at once."""

    def instant(self, query: str, at: float) -> list[Series]:
        return ANSWER

    def range(self, query: str, start: float, end: float, step: float) -> list[Series]:
        return ANSWER


def asked(faults: Faults, times: int) -> tuple[float, int]:
    """Return the seconds that so many queries took, and how many failed."""
    clock = VirtualClock(0.0)
    disturbed = DisturbedPrometheus(Ready(), clock, faults)
    for number in range(times):
        with contextlib.suppress(PrometheusError):
            answer = disturbed.range("up", 0, 1, 1) if number % 2 else disturbed.instant("up", 0)
            assert answer is ANSWER
    return clock.now, disturbed.failed


def test_the_clock_goes_on_while_a_query_takes_long() -> None:
    seconds, failed = asked(Faults(delay=0.5), 400)
    assert seconds == pytest.approx(200, rel=0.2)
    assert failed == 0


def test_a_share_of_the_queries_fails() -> None:
    _seconds, failed = asked(Faults(failures=0.25), 400)
    assert failed == pytest.approx(100, rel=0.3)


def test_what_takes_longer_than_the_service_waits_has_no_answer() -> None:
    seconds, failed = asked(Faults(delay=QUERY_SECONDS), 400)
    assert failed == pytest.approx(400 / 2.718, rel=0.3)
    assert seconds <= 400 * QUERY_SECONDS
