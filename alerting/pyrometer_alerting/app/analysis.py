"""The workers beside delivery: signatures of active runs, pictures of incidents, digests.

The cost of signatures is bounded: one run at a time, and after each a pause of 19 times the time it took, so that the
thread never takes more than 5 % of a core. With very many runs each is examined less often; stale ones are absent.
"""

from __future__ import annotations

import importlib
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

from pyrometer_alerting.channel.blocks import Style
from pyrometer_alerting.channel.breaker import Breaker
from pyrometer_alerting.channel.digest.digest_pictures import DigestPictures
from pyrometer_alerting.channel.digest.scheduler import Digests, DigestScheduler
from pyrometer_alerting.channel.incident_pictures import IncidentPictures, PictureUploader
from pyrometer_alerting.channel.slack import Slack
from pyrometer_alerting.incidents.metrics import Metrics
from pyrometer_alerting.incidents.storage.store import Store
from pyrometer_alerting.model.routing import Routing
from pyrometer_kit.clock import Clock
from pyrometer_kit.prometheus import Prometheus, PrometheusError

if TYPE_CHECKING:
    from pyrometer_alerting.diagnosis.batches import Run
    from pyrometer_alerting.diagnosis.examination import Examination

_log = logging.getLogger(__name__)

EVERY_SECONDS = 60.0
REST = 19.0
STALE_SECONDS = 600.0
WAVE_EVERY_SECONDS = 3600.0
MAX_RUNS = 500

Gauge = dict[tuple[tuple[str, str], ...], float]


class Worker(Protocol):
    """Does its work in a thread of its own, in `run`."""

    def run(self) -> None:
        """Work until stopped."""

    def stop(self) -> None:
        """Let `run` return."""


class RunAnalysis(Protocol):
    """The functions of `diagnosis.investigation`, imported by the worker since pandas is slow to import."""

    def active_runs(self, prometheus: Prometheus, now: float) -> list[Run]:
        """Return all runs with batches in the last hour."""
        ...

    def examine(self, prometheus: Prometheus, run: Run, now: float, wave: float) -> Examination | None:
        """Examine one run."""
        ...

    def daily_wave_of_run(self, prometheus: Prometheus, run: Run, now: float) -> float:
        """Return the amplitude of the run's 24-hour wave."""
        ...


def load_run_analysis() -> RunAnalysis:
    """Import pandas and its users."""
    return cast(RunAnalysis, importlib.import_module("pyrometer_alerting.diagnosis.investigation"))


@dataclass(frozen=True)
class SignatureReading:
    """The confidences of one run, and when it was examined."""

    at: float
    confidences: Mapping[str, float]


class SignatureWatch:
    """Examines active runs in its own thread; `gauge` may be called from any."""

    def __init__(self, prometheus: Prometheus, *, clock: Clock, metrics: Metrics) -> None:
        self._prometheus, self._clock, self._metrics = prometheus, clock, metrics
        self._readings: dict[tuple[str, str, str], SignatureReading] = {}
        self._looked: dict[tuple[str, str, str], float] = {}
        self._waves: dict[tuple[str, str, str], tuple[float, float]] = {}
        self._runs: tuple[float, list[Run]] = (0.0, [])
        self._lock = threading.Lock()
        self._stop = threading.Event()

    def run(self) -> None:
        """Examine runs until stopped."""
        analysis = load_run_analysis()
        while not self._stop.is_set():
            started = self._clock.wall()
            took = self.step(analysis)
            rest = max(REST * took, 0.0 if took else EVERY_SECONDS / 4)
            _log.debug("signatures: took %.3f s at %.0f, pausing %.1f s", took, started, rest)
            self._stop.wait(rest)

    def stop(self) -> None:
        """Let `run` return."""
        self._stop.set()

    def step(self, analysis: RunAnalysis) -> float:
        """Examine the run that has waited longest, if one is due; return the seconds that it took."""
        started = self._clock.wall()
        try:
            runs = self._active(analysis, started)
        except PrometheusError as error:
            _log.warning("signatures: %s", error)
            return 0.0
        due = [run for run in runs if started - self._looked.get(run.key, 0.0) >= EVERY_SECONDS]
        if not due:
            return 0.0
        self._look(analysis, min(due, key=lambda run: self._looked.get(run.key, 0.0)), started)
        return max(self._clock.wall() - started, 0.001)

    def gauge(self) -> Gauge:
        """Return pyrometer_run_signature by (cluster, run, job_id, signature), without stale values."""
        oldest = self._clock.wall() - STALE_SECONDS
        with self._lock:
            fresh = {run: reading for run, reading in self._readings.items() if reading.at >= oldest}
        return {
            (("cluster", cluster), ("run", run), ("job_id", job_id), ("signature", kind)): confidence
            for (cluster, run, job_id), reading in fresh.items()
            for kind, confidence in reading.confidences.items()
        }

    def _active(self, analysis: RunAnalysis, now: float) -> list[Run]:
        """Return the active runs; the list is refreshed at half the interval of examinations."""
        at, runs = self._runs
        if now - at >= EVERY_SECONDS / 2:
            runs = analysis.active_runs(self._prometheus, now)[:MAX_RUNS]
            self._runs = (now, runs)
            self._forget({run.key for run in runs})
        return runs

    def _look(self, analysis: RunAnalysis, run: Run, now: float) -> None:
        key = run.key
        self._looked[key] = now
        try:
            examination = analysis.examine(self._prometheus, run, now, self._wave(analysis, run, now))
        except PrometheusError as error:
            self._metrics.signatures.labels("no_answer").inc()
            _log.warning("signatures: run %r: %s", run.name, error)
            return
        except Exception:  # noqa: BLE001 - a curve that cannot be read must not end all others
            self._metrics.signatures.labels("error").inc()
            _log.exception("signatures: run %r", run.name)
            return
        verdict = examination.verdict if examination is not None else None
        with self._lock:
            if verdict is None:
                self._readings.pop(key, None)
            else:
                self._readings[key] = SignatureReading(now, verdict.confidences)
        kind = "too_few_batches" if verdict is None else "unknown" if verdict.kind == "unknown" else "named"
        self._metrics.signatures.labels(kind).inc()

    def _wave(self, analysis: RunAnalysis, run: Run, now: float) -> float:
        """Return the amplitude of the daily wave, which needs two days of data and is queried once an hour."""
        key = run.key
        amplitude, at = self._waves.get(key, (0.0, 0.0))
        if now - at >= WAVE_EVERY_SECONDS:
            amplitude = analysis.daily_wave_of_run(self._prometheus, run, now)
            self._waves[key] = (amplitude, now)
        return amplitude

    def _forget(self, active: set[tuple[str, str, str]]) -> None:
        with self._lock:
            self._readings = {key: reading for key, reading in self._readings.items() if key in active}
        self._looked = {key: at for key, at in self._looked.items() if key in active}
        self._waves = {key: wave for key, wave in self._waves.items() if key in active}


class AnalysisWorkers:
    """Runs each worker in its own thread; without a Prometheus there are only digests of the incidents."""

    def __init__(
        self,
        store: Store,
        slack: Slack,
        prometheus: Prometheus | None,
        digests: Digests,
        *,
        style: Style,
        clock: Clock,
        metrics: Metrics,
        changed: Callable[[], None],
        breaker: Breaker,
    ) -> None:
        self._stopping = threading.Event()
        uploader = PictureUploader(slack, self._stopping.wait, breaker, clock)
        pictures = DigestPictures(store, uploader, charts=style.charts, clock=clock, changed=changed)
        self.digest_scheduler = DigestScheduler(
            store, digests, style=style, clock=clock, changed=changed, pictures=pictures
        )
        self.workers: list[Worker] = [self.digest_scheduler]
        self._incident_pictures: IncidentPictures | None = None
        if prometheus is not None:
            watch = SignatureWatch(prometheus, clock=clock, metrics=metrics)
            metrics.serve_gauges(lambda: {"pyrometer_run_signature": watch.gauge()})
            charts = style.charts
            self._incident_pictures = IncidentPictures(
                store, uploader, prometheus, charts=charts, clock=clock, metrics=metrics, changed=changed
            )
            self.workers += [watch, self._incident_pictures]

    def replace(self, routing: Routing) -> None:
        """Put another routing in force."""
        self.digest_scheduler.routing = routing
        if self._incident_pictures is not None:
            self._incident_pictures.routing = routing

    def stop(self) -> None:
        """End the waits of uploads; the workers stop on their own."""
        self._stopping.set()
