"""A run's batches, what they should be, and which known trouble their curve looks like: one look at one run."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from pyrometer_alerting.diagnosis.signature import KINDS, LOOK_AT, Drop, Reference, Verdict, classify, classify_drop
from pyrometer_alerting.model.incident import Shape
from pyrometer_alerting.prometheus import Prometheus
from pyrometer_alerting.sources.batches import WINDOW_SECONDS, MfuCurve, Run, batches, clean_curve, selected
from pyrometer_alerting.sources.expected_mfu import ExpectedMfu, daily_wave, expected_mfu

ALSO = 0.25  # a second kind that is worth a word
SCRAPE_SECONDS = 60.0  # the newest batch is as old as the last scrape at least: four of 15 s

AROUND_DROP = 2.5  # of an old drop as much is looked at from before it as of it, and some more


@dataclass(frozen=True)
class Examination:
    """`frame` has every batch of the window, `curve` the clean ones against the expectation."""

    frame: pd.DataFrame
    curve: MfuCurve
    expectation: ExpectedMfu
    verdict: Verdict | None

    def shape(self) -> Shape | None:
        """What may be kept and shown of it."""
        if self.verdict is None:
            return None
        (kind, confidence), *others = self.verdict.confidences.items()
        also = next((KINDS[name] for name, share in others if share >= ALSO and name not in ("steady", "unknown")), "")
        return Shape(kind, confidence, self.verdict.said, also, LOOK_AT.get(kind, ""))


def examine(
    prometheus: Prometheus, run: Run, now: float, wave: float = 0.0, drop: Drop | None = None
) -> Examination | None:
    """Look at a run's window; None where it has no batches, or has ended. Raises PrometheusError.

    Of a run that fell the verdict is on the drop alone, else on the whole window.
    """
    least = WINDOW_SECONDS if drop is None else AROUND_DROP * (now - drop.fired_at)
    frame = batches(prometheus, run.cluster, run.name, now - run.window(least), now)
    expected = expected_mfu(prometheus, run.cluster, run.name, frame, now)
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
    """The amplitude of the run's wave of 24 hours; raises PrometheusError."""
    return daily_wave(prometheus, run.cluster, run.name, now)


def _stands(prometheus: Prometheus, run: Run, now: float) -> bool | None:
    """Whether a run without news stands; None when it has ended well: then its last step is no longer exported."""
    where = selected(run.cluster, run.name)
    if not prometheus.instant(f"max(pyrometer_train_last_step_timestamp_seconds{where})", now):
        return None
    planned = where.removesuffix("}") + ',part=~"checkpoint|eval"}'
    return not prometheus.instant(f"max(pyrometer_train_current_part_seconds{planned})", now)
