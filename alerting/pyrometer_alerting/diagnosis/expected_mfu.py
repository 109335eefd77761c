"""The MFU that a run should reach, and where that number is from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from pyrometer_alerting.diagnosis.batches import Floats, good_level, selected
from pyrometer_kit.prometheus import Prometheus, Series

HISTORY = "7d:5m"  # earlier days of the run; the recording rule is not per batch, so a subquery loses nothing
WAVE_SECONDS = 2 * 86_400  # two whole days; with less, a daily wave would be a guess


@dataclass(frozen=True)
class ExpectedMfu:
    """The expected MFU (a ratio, 0-1) and its source in words; `own` if only the run itself is the source.

    `best_before` is the run's own best before the window.
    """

    mfu: float
    source: str
    own: bool
    best_before: float | None = None


def expected_mfu(prometheus: Prometheus, cluster: str, run: str, frame: pd.DataFrame, end: float) -> ExpectedMfu | None:
    """Return the best estimate for a run with these batches; None without batches.

    It was given by the job or learned from its configuration (by a recording rule), else it is the run's own best.

    Raises:
        PrometheusError: a query failed.
    """
    clean = frame.loc[~frame["tagged"].astype(bool), "mfu"].to_numpy(dtype=float)
    if not len(clean):
        return None
    own = good_level(clean)
    start = float(frame["at"].iloc[0])
    before = _value(prometheus, f"max(quantile_over_time(0.9, {_RECENT}{selected(cluster, run)}[{HISTORY}]))", start)
    expected = _value(prometheus, f"max(run:pyrometer_train_batch_mfu_ratio:expected{selected(cluster, run)})", end)
    if expected is not None:
        return ExpectedMfu(expected, "expected for this configuration", own=False, best_before=before)
    best = max(own, before or 0.0)
    source = "own best of 7 days" if before is not None and before > own else "own best of the window"
    return ExpectedMfu(best, source, own=True, best_before=before)


_RECENT = "run:pyrometer_train_batch_mfu_ratio:recent"


def daily_wave(prometheus: Prometheus, cluster: str, run: str, now: float) -> float:
    """Return the relative amplitude of a 24-hour wave over two days of this run; 0 without a wave or two days.

    Raises:
        PrometheusError: the query failed.
    """
    query = f"max(avg_over_time(pyrometer_train_batch_mfu_ratio{selected(cluster, run)}[10m]))"
    result = prometheus.range(query, now - WAVE_SECONDS, now, 600)
    return daily_amplitude(result[0]) if result else 0.0


def daily_amplitude(series: Series) -> float:
    """Return the amplitude at 24 hours relative to the mean, if it explains most of the slow variation."""
    points = np.array(series.points, dtype=float)
    if len(points) < 0.9 * WAVE_SECONDS / 600:
        return 0.0
    at, mfu = points[:, 0], points[:, 1]
    smooth: Floats = pd.Series(mfu).rolling(6, center=True, min_periods=1).median().to_numpy(dtype=float)
    angle = 2 * np.pi * at / 86_400
    design = np.column_stack([np.ones(len(at)), np.cos(angle), np.sin(angle)])
    solved, *_ = np.linalg.lstsq(design, smooth, rcond=None)
    rest = smooth - design @ solved
    explained = 1 - float(np.var(rest)) / max(float(np.var(smooth)), 1e-12)
    amplitude = float(np.hypot(solved[1], solved[2])) / max(float(solved[0]), 1e-9)
    return amplitude if explained > 0.6 else 0.0


def _value(prometheus: Prometheus, query: str, at: float) -> float | None:
    result = prometheus.instant(query, at)
    return result[0].points[0][1] if result and result[0].points[0][1] > 0 else None
