from __future__ import annotations

import numpy as np
import pytest
from alerting_fakes import SILENT, START, FakeClock, FakePrometheus

from pyrometer_alerting.app.analysis import EVERY_SECONDS, STALE_SECONDS, SignatureWatch
from pyrometer_alerting.diagnosis import investigation
from pyrometer_alerting.diagnosis.batches import Run, batches
from pyrometer_alerting.diagnosis.examination import Examination, examine
from pyrometer_alerting.incidents.metrics import Metrics
from pyrometer_kit.prometheus import Series
from pyrometer_simulator.mfu_traces import Trace, trace

RUN = Run("c1", 'llama "70b"', 1200.0)


def point(value: float, **labels: str) -> Series:
    return Series(labels, ((START, value),))


class Stored(FakePrometheus):
    """A Prometheus that holds one run's batches, the newest one just measured."""

    def __init__(self, run: Trace, *, age: float = 2.0) -> None:
        super().__init__()
        self.trace, self.age = run, age
        self.on("^sum by .*count_over_time", [point(1200, cluster="c1", run=RUN.name)])
        self.on("^sum.*count_over_time", [point(1200)])

    def instant(self, query: str, at: float) -> list[Series]:
        if not query.endswith("]"):  # not the stored samples of a range
            return super().instant(query, at)
        self.queries.append(query)
        values = {"mfu_ratio": self.trace.mfu, "batch_step{": self.trace.step}
        times = self.trace.at - self.trace.at[-1] + at - self.age
        for name, found in values.items():
            if name in query:
                return [self._series(times, found, kept) for kept in self._attempts()]
        if "batch_tag" in query and self.trace.tagged.any():
            chosen = self.trace.tagged & (self.trace.attempt == 0)
            return [Series({"attempt": "0", "tag": "checkpoint"}, tuple((float(t), 1.0) for t in times[chosen]))]
        return []

    def _attempts(self) -> list[np.ndarray]:
        return [self.trace.attempt == attempt for attempt in np.unique(self.trace.attempt)]

    def _series(self, times: np.ndarray, values: np.ndarray, kept: np.ndarray) -> Series:
        attempt = str(self.trace.attempt[kept][0])
        return Series({"attempt": attempt}, tuple(zip(times[kept].tolist(), values[kept].tolist(), strict=True)))


def test_batches_are_read_raw_with_their_tags_and_attempts() -> None:
    run = trace("gradual_decline", 3, 3.0)
    prometheus = Stored(run)
    frame = batches(prometheus, RUN.cluster, RUN.name, START - 3600, START)
    assert len(frame) == len(run.at)
    assert frame["tagged"].sum() == (run.tagged & (run.attempt == 0)).sum()
    assert frame["attempt"].tolist() == run.attempt.tolist()
    assert frame["at"].is_monotonic_increasing
    assert prometheus.queries[0].endswith('run="llama \\"70b\\""}[3600000ms]')


def test_a_batch_that_two_nodes_served_counts_once() -> None:
    prometheus = FakePrometheus()
    twice = Series({"attempt": "0", "node": "a"}, ((START - 2, 0.4), (START - 1, 0.4)))
    prometheus.on("mfu_ratio", [twice, Series({"attempt": "0", "node": "b"}, twice.points[1:])])
    assert len(batches(prometheus, "c1", "r", START - 10, START)) == 2


def test_the_window_holds_600_steps_but_not_too_many_samples() -> None:
    assert Run("c", "r", 3600.0).window() == 3600.0
    assert Run("c", "r", 120.0).window() == 600 * 30.0
    assert Run("c", "r", 1.0).window() == 6 * 3600.0
    assert Run("c", "r", 400_000.0).window() == pytest.approx(360.0)


def test_what_the_configuration_is_expected_to_reach_comes_first() -> None:
    run = trace("third_from_start", 3, 3.0)
    prometheus = Stored(run)
    prometheus.on("mfu_ratio:expected", [point(run.expected)])
    found = examine(prometheus, RUN, START)
    assert found is not None
    shape = found.shape()
    assert shape is not None
    assert shape.kind == "third_from_start"
    assert found.expectation.source == "expected for this configuration"
    assert "nvidia_peermem" in shape.look_at


def test_else_the_run_is_compared_with_its_own_best() -> None:
    run = trace("steady", 3, 3.0)
    prometheus = Stored(run)
    prometheus.on(r"quantile_over_time.*:recent\{", [point(2 * run.expected)])
    found = examine(prometheus, RUN, START)
    assert found is not None
    assert found.expectation.mfu == 2 * run.expected
    assert (found.expectation.source, found.expectation.own) == ("own best of 7 days", True)


def test_a_run_that_stands_is_stopped_and_one_that_ended_is_nothing() -> None:
    prometheus = Stored(trace("steady", 3, 3.0), age=300.0)
    assert examine(prometheus, RUN, START) is None
    prometheus.on("last_step_timestamp", [point(START - 300)])
    found = examine(prometheus, RUN, START)
    assert found is not None
    assert found.verdict is not None
    assert found.verdict.kind == "stopped"
    prometheus.on("current_part", [point(280.0)])
    saving = examine(prometheus, RUN, START)
    assert saving is not None
    assert saving.verdict is not None
    assert saving.verdict.kind == "steady"


def watch(prometheus: FakePrometheus) -> tuple[SignatureWatch, FakeClock]:
    clock = FakeClock()
    return SignatureWatch(prometheus, clock=clock, metrics=Metrics()), clock


def test_every_active_run_has_its_signature_until_it_is_too_old() -> None:
    watching, clock = watch(Stored(trace("step_down", 3, 3.0)))
    assert watching.step(investigation) > 0
    gauge = watching.gauge()
    named = dict(max(gauge, key=lambda key: gauge[key]))
    assert named == {"cluster": "c1", "run": RUN.name, "job_id": "", "signature": "step_down"}
    assert watching.step(investigation) == 0.0  # looked at already
    clock.advance(EVERY_SECONDS)
    assert watching.step(investigation) > 0
    clock.advance(STALE_SECONDS + 1)
    assert watching.gauge() == {}


def test_a_silent_prometheus_leaves_the_signature_absent() -> None:
    prometheus = FakePrometheus()
    prometheus.on(".", SILENT)
    watching, _clock = watch(prometheus)
    assert watching.step(investigation) == 0.0
    assert watching.gauge() == {}


def test_a_run_whose_look_fails_does_not_keep_the_others_from_theirs() -> None:
    class Broken:
        active_runs = staticmethod(lambda _prometheus, _now: [Run("c", "bad", 9.0), Run("c", "good", 9.0)])
        daily_wave_of_run = staticmethod(lambda _prometheus, _run, _now: 0.0)

        @staticmethod
        def examine(prometheus: FakePrometheus, run: Run, now: float, wave: float) -> Examination | None:
            if run.name == "bad":
                raise ValueError("odd")
            return investigation.examine(Stored(trace("steady", 1, 3.0)), run, now, wave)

    watching, _clock = watch(FakePrometheus())
    watching.step(Broken())
    watching.step(Broken())
    assert {dict(key)["run"] for key in watching.gauge()} == {"good"}


def test_a_run_that_is_gone_is_forgotten() -> None:
    runs = [[Run("c", "old", 9.0)], [Run("c", "new", 9.0)]]

    class RunAnalysis:
        active_runs = staticmethod(lambda _prometheus, _now: runs.pop(0))
        daily_wave_of_run = staticmethod(lambda _prometheus, _run, _now: 0.0)
        examine = staticmethod(
            lambda _prometheus, run, now, wave: investigation.examine(Stored(trace("steady", 1, 3.0)), run, now, wave)
        )

    watching, clock = watch(FakePrometheus())
    watching.step(RunAnalysis())
    clock.advance(EVERY_SECONDS)
    watching.step(RunAnalysis())
    assert {dict(key)["run"] for key in watching.gauge()} == {"new"}
