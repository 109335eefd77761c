"""Examine one run: its batches, their expected MFU, and the known trouble that their curve resembles."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from pyrometer_alerting.diagnosis.batches import (
    WINDOW_SECONDS,
    ExpectedMfu,
    MfuCurve,
    Run,
    batches,
    clean_curve,
    daily_wave,
    expected_mfu,
)
from pyrometer_alerting.diagnosis.run_matchers import selected
from pyrometer_alerting.diagnosis.signature import KINDS, LOOK_AT, Drop, Reference, Verdict, classify, classify_drop
from pyrometer_alerting.model.incident import Shape
from pyrometer_kit.prometheus import Prometheus

ALSO = 0.25  # share from which a second kind is mentioned
SCRAPE_SECONDS = 60.0  # age that the newest batch may have because of scraping: four scrapes of 15 s

AROUND_DROP = 2.5  # an old drop is examined with this many times its length, to include the time before it


@dataclass(frozen=True)
class Examination:
    """`frame` has every batch of the window, `curve` the clean ones relative to the expected MFU."""

    frame: pd.DataFrame
    curve: MfuCurve
    expectation: ExpectedMfu
    verdict: Verdict | None

    def shape(self) -> Shape | None:
        """Return the part that is stored and shown."""
        if self.verdict is None:
            return None
        (kind, confidence), *others = self.verdict.confidences.items()
        also = next((KINDS[name] for name, share in others if share >= ALSO and name not in ("steady", "unknown")), "")
        return Shape(kind, confidence, self.verdict.said, also, LOOK_AT.get(kind, ""))


def examine(
    prometheus: Prometheus, run: Run, now: float, wave: float = 0.0, drop: Drop | None = None
) -> Examination | None:
    """Examine a run's window; None if it has no batches or has ended.

    The verdict is on the drop alone if there is one, else on the whole window.

    Raises:
        PrometheusError: a query failed.
    """
    least = WINDOW_SECONDS if drop is None else AROUND_DROP * (now - drop.fired_at)
    frame = batches(prometheus, run.cluster, run.name, now - run.window(least), now, job_id=run.job_id)
    expected = expected_mfu(prometheus, run.cluster, run.name, frame, now, job_id=run.job_id)
    if expected is None:
        return None
    curve = clean_curve(frame, expected.mfu)
    silent = now - float(frame["at"].iloc[-1])
    if silent > max(10 * curve.step_seconds, SCRAPE_SECONDS):
        stands = _stands(prometheus, run, now)
        if stands is None:
            return None
        silent = silent if stands else 0.0
    if drop is not None:
        return Examination(frame, curve, expected, classify_drop(curve, drop, silent))
    before = None if expected.best_before is None else expected.best_before / expected.mfu
    reference = Reference(own=expected.own, best_before=before, wave=wave)
    return Examination(frame, curve, expected, classify(curve, reference, silent))


def daily_wave_of_run(prometheus: Prometheus, run: Run, now: float) -> float:
    """Return the amplitude of the run's 24-hour wave.

    Raises:
        PrometheusError: the query failed.
    """
    return daily_wave(prometheus, run.cluster, run.name, now, run.job_id)


def _stands(prometheus: Prometheus, run: Run, now: float) -> bool | None:
    """Return whether a silent run has stopped; None if it has ended: its last step is no longer exported then."""
    where = selected(run.cluster, run.name, run.job_id)
    last = prometheus.instant(f"max(pyrometer_train_last_step_timestamp_seconds{where})", now)
    if not last:
        return None
    if now - last[0].points[-1][1] < SCRAPE_SECONDS:  # another rank goes on: the batches are late
        return False
    planned = where.removesuffix("}") + ',part=~"checkpoint|eval"}'
    return not prometheus.instant(f"max(pyrometer_train_current_part_seconds{planned})", now)
