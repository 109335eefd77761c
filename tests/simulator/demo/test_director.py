"""The director waits for a baseline before the faults, and for resolves after them; longer on a busy machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pyrometer_simulator.demo import director, scenario
from pyrometer_simulator.demo.director import Director
from pyrometer_simulator.demo.processes import Processes
from pyrometer_simulator.demo.verdict import Finding


class Pace:
    """A Prometheus that knows only how fast the run takes its steps."""

    def __init__(self, steps_per_second: float | None) -> None:
        self.steps_per_second = steps_per_second

    def value(self, query: str, at: float | None = None) -> float | None:
        assert "pyrometer_train_steps_total" in query
        assert at is None
        return self.steps_per_second


class Channel:
    """A channel without a message."""

    calls: tuple[()] = ()

    def messages(self, channel: str) -> list[dict[str, Any]]:
        assert channel
        return []


class Clock:
    """The module `time` of the director: it passes only while the director sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0

    def time(self) -> float:
        return self.now

    monotonic = time

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def playing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, prometheus: object, clock: Clock) -> Director:
    monkeypatch.setattr(director, "time", clock)
    monkeypatch.setattr(director, "incidents", lambda _: [])
    processes = Processes(tmp_path)
    return Director({}, prometheus, Channel(), "", processes, lambda _: None, _traffic_at=clock.now)  # type: ignore[arg-type]


def waited(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pace: float | None, *, named: bool = True) -> float:
    """Return for how long the director waits for an incident that never ends."""
    clock = Clock()
    played = playing(monkeypatch, tmp_path, Pace(pace), clock)
    found = Finding("GpuThrottledThermal", "gpu-003 GPU 5", "heat", clock.now)
    found.named_at = clock.now if named else None
    played.report.findings = [found]
    start = clock.now
    played._wait_for_resolves()
    return clock.now - start


def test_an_incident_has_its_time_to_resolve(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert waited(monkeypatch, tmp_path, pace=4.0) == pytest.approx(scenario.RESOLVE_SECONDS, abs=1)


def test_a_run_that_others_slow_down_has_a_true_drop_and_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert waited(monkeypatch, tmp_path, pace=3.0) == pytest.approx(scenario.BUSY_RESOLVE_SECONDS, abs=1)


def test_without_an_answer_of_prometheus_nothing_is_slow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert waited(monkeypatch, tmp_path, pace=None) == pytest.approx(scenario.RESOLVE_SECONDS, abs=1)


class Batches:
    """A Prometheus that knows how many batches a run has that takes so many steps a second."""

    def __init__(self, clock: Clock, steps_per_second: float) -> None:
        self._clock, self._since, self._pace = clock, clock.now, steps_per_second

    def value(self, query: str, at: float | None = None) -> float | None:
        assert "config_batches3h" in query
        assert at is None
        count = (self._clock.now - self._since) * self._pace
        return count or None


@pytest.mark.parametrize(("pace", "seconds"), [(4.0, 50.0), (1.3, 154.0), (0.0, scenario.BUSY_BASELINE_SECONDS)])
def test_faults_wait_until_the_rules_have_batches_to_compare_with(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pace: float, seconds: float
) -> None:
    clock = Clock()
    played = playing(monkeypatch, tmp_path, Batches(clock, pace), clock)
    start = clock.now
    played._wait_for_baseline(start + scenario.BUSY_BASELINE_SECONDS)
    assert clock.now - start == pytest.approx(seconds, abs=2)
