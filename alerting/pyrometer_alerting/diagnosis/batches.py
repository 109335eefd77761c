"""Read every batch of a run from Prometheus as it was measured: raw samples with their own timestamps.

An instant query with a range selector returns the stored samples unchanged; a range query would pick one per step and
miss those in between. Import this late: it needs pandas.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pyrometer_alerting.diagnosis.run_matchers import selected
from pyrometer_kit.prometheus import Prometheus, Series

Floats = NDArray[np.float64]

# The window of published studies of such signatures: long enough for a fault every 15 minutes, and for 600 steps of a
# slow run.
WINDOW_SECONDS = 3600.0
WINDOW_STEPS = 600
LONGEST_SECONDS = 6 * 3600.0
MOST_SAMPLES = 40_000  # of one run in one query: above 11 steps a second the window gets shorter
IMPOSSIBLE = 1000.0  # times the expected MFU: no step is so fast, and sums of such values overflow
AFTER_RESTART = 10  # batches after a (re)start that are left out: compilation, cold caches
COLUMNS = ("at", "mfu", "step", "attempt", "tagged")


@dataclass(frozen=True)
class Run:
    """A run with batches, and how many of them fall into the last WINDOW_SECONDS."""

    cluster: str
    name: str
    batches: float
    job_id: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """Its cluster, name and job."""
        return self.cluster, self.name, self.job_id

    def window(self, least: float = WINDOW_SECONDS) -> float:
        """Return the seconds to look back for `least` and WINDOW_STEPS, within LONGEST_SECONDS and MOST_SAMPLES."""
        per_batch = WINDOW_SECONDS / max(self.batches, 1.0)
        longest = min(LONGEST_SECONDS, MOST_SAMPLES * per_batch)
        return min(max(WINDOW_SECONDS, WINDOW_STEPS * per_batch, least), longest)


@dataclass(frozen=True)
class MfuCurve:
    """The clean batches of one run, oldest first; all arrays have one entry per batch.

    `at` is Unix seconds, `ratio` MFU over the expected MFU; `attempt` counts restarts inside the window from 0.
    """

    at: Floats
    ratio: Floats
    step: Floats
    attempt: NDArray[np.int64]

    @property
    def step_seconds(self) -> float:
        """The median time between two batches."""
        return float(np.median(np.diff(self.at))) if len(self.at) > 1 else 0.0

    def part(self, begin: float, end: float = float("inf")) -> MfuCurve:
        """Return the batches after `begin` up to and including `end` (Unix seconds)."""
        return self.where((self.at > begin) & (self.at <= end))

    def followed_by(self, later: MfuCurve) -> MfuCurve:
        """Return this curve followed by a later one."""
        at, ratio, step, attempt = (
            np.concatenate([vars(self)[name], vars(later)[name]]) for name in ("at", "ratio", "step", "attempt")
        )
        return MfuCurve(at, ratio, step, attempt)

    def where(self, kept: NDArray[np.bool_]) -> MfuCurve:
        """Return the batches that are marked True."""
        return MfuCurve(self.at[kept], self.ratio[kept], self.step[kept], self.attempt[kept])


def active_runs(prometheus: Prometheus, now: float) -> list[Run]:
    """Return all runs that reported batches in the last hour, those with the most batches first.

    Raises:
        PrometheusError: the query failed.
    """
    query = f"sum by (cluster, run, job_id) (count_over_time(pyrometer_train_batch_mfu_ratio[{WINDOW_SECONDS:.0f}s]))"
    runs = [
        Run(
            series.labels.get("cluster", ""),
            series.labels.get("run", ""),
            series.points[0][1],
            series.labels.get("job_id", ""),
        )
        for series in prometheus.instant(query, now)
    ]
    return sorted(runs, key=lambda run: (-run.batches, *run.key))


def run_of(prometheus: Prometheus, cluster: str, run: str, now: float, job_id: str = "") -> Run:
    """Return one run, with 0 batches if it has none.

    Raises:
        PrometheusError: the query failed.
    """
    selector = f"pyrometer_train_batch_mfu_ratio{selected(cluster, run, job_id)}"
    result = prometheus.instant(f"sum(count_over_time({selector}[{WINDOW_SECONDS:.0f}s]))", now)
    return Run(cluster, run, result[0].points[0][1] if result else 0.0, job_id)


def batches(
    prometheus: Prometheus, cluster: str, run: str, start: float, end: float, *, job_id: str = ""
) -> pd.DataFrame:
    """Return the run's batches between two times, oldest first; columns COLUMNS, `attempt` counted from 0.

    Raises:
        PrometheusError: a query failed.
    """
    where = f"{selected(cluster, run, job_id)}[{max(round(1000 * (end - start)), 1)}ms]"
    frame = _column(prometheus.instant(f"pyrometer_train_batch_mfu_ratio{where}", end), "mfu")
    if frame.empty:
        return pd.DataFrame(columns=list(COLUMNS))
    steps = _column(prometheus.instant(f"pyrometer_train_batch_step{where}", end), "step")
    tags = _column(prometheus.instant(f"pyrometer_train_batch_tag{where}", end), "tagged")
    frame = frame.merge(steps, on=["attempt", "at"], how="left").merge(tags, on=["attempt", "at"], how="left")
    frame["tagged"] = frame["tagged"].notna()
    frame["step"] = frame["step"].fillna(pd.Series(np.arange(len(frame)), index=frame.index))
    frame["attempt"] = pd.factorize(frame["attempt"], sort=True)[0]
    return frame.sort_values("at", kind="stable").reset_index(drop=True)[list(COLUMNS)]


def clean_curve(frame: pd.DataFrame, reference: float) -> MfuCurve:
    """Return the curve of the clean batches of such a frame, against a reference MFU."""
    at, mfu, step = (frame[name].to_numpy(dtype=float) for name in ("at", "mfu", "step"))
    return curve_of(at, mfu / reference, step, frame["attempt"].to_numpy(np.int64), frame["tagged"].to_numpy(np.bool_))


def curve_of(
    at: Floats, ratio: Floats, step: Floats, attempt: NDArray[np.int64], tagged: NDArray[np.bool_]
) -> MfuCurve:
    """Return a curve without misleading batches: tagged, beside these, first after a restart, impossibly fast."""
    clean = _clean(attempt, tagged) & (ratio > 0) & (ratio < IMPOSSIBLE)  # nan is neither
    return MfuCurve(at[clean], ratio[clean], step[clean], attempt[clean])


def good_level(mfu: Floats) -> float:
    """Return the MFU of a healthy run: the median of its best fifth (a mean would be pulled down by its dips)."""
    return float(np.quantile(mfu, 0.9)) if len(mfu) else float("nan")


def _clean(attempt: NDArray[np.int64], tagged: NDArray[np.bool_]) -> NDArray[np.bool_]:
    beside = tagged.copy()
    beside[1:] |= tagged[:-1]
    beside[:-1] |= tagged[1:]
    for start in np.flatnonzero(np.diff(attempt)) + 1:
        beside[start : start + AFTER_RESTART] = True
    return ~beside


def _column(series_list: Iterable[Series], name: str) -> pd.DataFrame:
    """Return columns attempt, at and the value; a batch served by two nodes (the reporting rank moved) counts once."""
    frames = [
        pd.DataFrame(series.points, columns=["at", name]).assign(attempt=_attempt(series.labels))
        for series in series_list
    ]
    if not frames:
        return pd.DataFrame(
            {"at": pd.Series(dtype=float), name: pd.Series(dtype=float), "attempt": pd.Series(dtype=float)}
        )
    return pd.concat(frames, ignore_index=True).drop_duplicates(["attempt", "at"])


def _attempt(labels: Mapping[str, str]) -> float:
    try:
        return float(labels.get("attempt", "0"))
    except ValueError:
        return 0.0


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


def expected_mfu(
    prometheus: Prometheus, cluster: str, run: str, frame: pd.DataFrame, end: float, *, job_id: str = ""
) -> ExpectedMfu | None:
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
    before = _value(
        prometheus, f"max(quantile_over_time(0.9, {_RECENT}{selected(cluster, run, job_id)}[{HISTORY}]))", start
    )
    expected = _value(
        prometheus, f"max(run:pyrometer_train_batch_mfu_ratio:expected{selected(cluster, run, job_id)})", end
    )
    if expected is not None:
        return ExpectedMfu(expected, "expected for this configuration", own=False, best_before=before)
    best = max(own, before or 0.0)
    source = "own best of 7 days" if before is not None and before > own else "own best of the window"
    return ExpectedMfu(best, source, own=True, best_before=before)


_RECENT = "run:pyrometer_train_batch_mfu_ratio:recent"


def daily_wave(prometheus: Prometheus, cluster: str, run: str, now: float, job_id: str = "") -> float:
    """Return the relative amplitude of a 24-hour wave over two days of this run; 0 without a wave or two days.

    Raises:
        PrometheusError: the query failed.
    """
    query = f"max(avg_over_time(pyrometer_train_batch_mfu_ratio{selected(cluster, run, job_id)}[10m]))"
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
