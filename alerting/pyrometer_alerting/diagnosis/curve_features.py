"""Measure the curve of a run's MFU: level, dips, stalls, trend, steps and noise.

Everything is computed on the raw batches. `ratio` is MFU over the expected MFU; time is Unix seconds.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pyrometer_alerting.diagnosis.batches import Floats, MfuCurve

BLOCKS = 48  # parts of the window: few enough to fit every change point, many enough for a trend
LOCAL_STEPS, LOCAL_SECONDS = 41, 60.0  # the neighbourhood that a dip is measured against
SHORT_STEPS, SHORT_SECONDS = 3, 10.0  # longest dip; a GPU that throttles every 15 s recovers in between
DIP, DEEP = 0.9, 0.5  # relative to the batches around it: the limits of Imbue's table (70B report)
RECENT_SECONDS = (600.0, 120.0)
LEAST_LINE = 8  # blocks of a line: with fewer a step's own blocks look like one
LEAST_NOISE = 0.004  # no real run is quieter; keeps the sigma of a perfect curve above zero


@dataclass(frozen=True)
class Dips:
    """Short dips of one depth: how many, how deep, and how regular (coefficient of variation of the gaps)."""

    count: int
    share: float  # of all batches
    depth: float  # median ratio in the dip to that of the batches around it
    gap_seconds: float
    gap_cv_seconds: float
    gap_cv_steps: float
    late: float  # share of them in the second half of the window
    spread: float  # distance from the first to the last, as a share of the window


@dataclass(frozen=True)
class Fit:
    """The best step, spell (down and up again), line and hinge (a line after a flat beginning) through the blocks.

    Errors are mean absolute deviations of the blocks from the fit; `flat` is the error of assuming no change.
    """

    flat: float
    line: float
    slope: float  # change over the whole window, as a ratio
    step: float
    before: float
    after: float
    spell: float
    inside: float
    outside: float
    hinge: float  # flat at first, then a line that goes on from there
    fallen: float  # by how much that line falls, as a ratio


@dataclass(frozen=True)
class Features:
    """The features that distinguish the kinds.

    `fits` cover the whole window and its last minutes: a drop of 20 s is nothing in an hour, but all that matters while
    it lasts. `trend` covers the longest stretch without a restart. With an earlier part of the curve given, `fits`
    include as much of it as of the curve, and `trend` all of it; everything else is of the curve alone.
    """

    level: float  # median ratio without dips
    mean: float  # mean ratio: what was really achieved
    noise: float  # robust sigma of the batches around their local level
    quiet_noise: float  # the same in the quietest quarter of the window
    autocorrelation: float  # correlation of neighbouring batches in that noise
    deep: Dips
    shallow: Dips
    fits: tuple[Fit, ...]
    trend: Fit
    resets: float  # share of a decline that a restart reversed, 0 without one
    batches: int
    seconds: float
    trend_seconds: float
    step_seconds: float


def undisturbed(curve: MfuCurve) -> MfuCurve:
    """Return the batches at the level of those around them: without dips and stalls."""
    relative = curve.ratio / _local_level(curve)
    return curve.where(relative >= _dip_below(relative))


def first_stall(curve: MfuCurve, latest: float) -> float:
    """Return when the first deep stall of a curve ended, `latest` if there is none before that."""
    stalls = curve.at[curve.ratio / _local_level(curve) < DEEP] if len(curve.at) else curve.at
    return min(float(stalls[0]), latest) if len(stalls) else latest


def features(curve: MfuCurve, before: MfuCurve | None = None) -> Features:
    """Measure a curve of at least 20 batches; `before` is the run's earlier curve without disturbances."""
    before = curve.part(float("inf")) if before is None else before
    relative = curve.ratio / _local_level(curve)
    noise = _sigma(relative[relative > DIP])
    low = relative < _dip_below(relative)
    starts, ends = _runs(low)
    short = _short(curve, starts, ends)
    starts, ends = starts[short], ends[short]
    steady = _without(low, starts, ends)
    whole, kept = before.followed_by(curve), np.concatenate([np.ones(len(before.at), dtype=np.bool_), steady])
    near = whole.at >= 2 * curve.at[0] - curve.at[-1]
    return Features(
        level=float(np.median(curve.ratio[steady])) if steady.any() else float(np.median(curve.ratio)),
        mean=_mean_over_time(curve),
        noise=noise,
        quiet_noise=_quietest(np.concatenate([before.ratio / _local_level(before), relative[relative > DIP]])),
        autocorrelation=_autocorrelation(relative[relative > DIP]),
        deep=_dips(curve, relative, starts, ends, deep=True),
        shallow=_dips(curve, relative, starts, ends, deep=False),
        fits=tuple(_fit(whole, kept & near & (whole.at >= start)) for start in _scales(whole)),
        trend=_fit(whole, kept & (whole.attempt == _longest_attempt(curve))),
        resets=_resets(curve, steady),
        batches=len(curve.at),
        seconds=float(curve.at[-1] - curve.at[0]),
        trend_seconds=float(whole.at[-1] - whole.at[0]),
        step_seconds=curve.step_seconds,
    )


def _scales(curve: MfuCurve) -> list[float]:
    """Return the starts of the whole window and of its last minutes."""
    end = curve.at[-1]
    recent = [end - seconds for seconds in RECENT_SECONDS if (curve.at >= end - seconds).sum() >= BLOCKS]
    return [float(start) for start in (curve.at[0], *recent) if start >= curve.at[0]]


def _longest_attempt(curve: MfuCurve) -> int:
    attempts, counts = np.unique(curve.attempt, return_counts=True)
    return int(attempts[np.argmax(counts)])


def _mean_over_time(curve: MfuCurve) -> float:
    """Return the mean over time, not over batches: one batch of a minute weighs as much as sixty of a second."""
    took = np.diff(curve.at, prepend=curve.at[0] - curve.step_seconds)
    took = np.minimum(took, 20 * max(curve.step_seconds, 1.0))  # a pause for a restart is not a slow batch
    return float(np.average(curve.ratio, weights=np.maximum(took, 1e-9)))


def _local_level(curve: MfuCurve) -> Floats:
    """Return the good level around each batch: the 70 % quantile of its neighbours, which dips do not pull down."""
    width = max(LOCAL_STEPS, round(LOCAL_SECONDS / max(curve.step_seconds, 1e-6)))
    width = min(width, max(len(curve.at) // 4, 5))
    rolled = pd.Series(curve.ratio).rolling(width, center=True, min_periods=1).quantile(0.7)
    level: Floats = np.maximum(rolled.to_numpy(dtype=float), 1e-9)
    return level


def _dip_below(relative: Floats) -> float:
    return min(DIP, 1 - 4 * _sigma(relative[relative > DIP]))


def _sigma(relative: Floats) -> float:
    """Return the robust standard deviation: 1.4826 times the median absolute deviation."""
    if len(relative) < 5:
        return LEAST_NOISE
    return max(1.4826 * float(np.median(np.abs(relative - np.median(relative)))), LEAST_NOISE)


def _quietest(relative: Floats) -> float:
    return min((_sigma(part) for part in np.array_split(relative, 4) if len(part) >= 20), default=_sigma(relative))


def _autocorrelation(relative: Floats) -> float:
    if len(relative) <= 5:
        return 0.0
    centred = relative - relative.mean()
    largest = float(np.abs(centred).max())
    if not 0 < largest < math.inf:
        return 0.0
    centred = centred / largest  # a stored MFU may be any number, and its square too large for one
    return float(np.dot(centred[:-1], centred[1:])) / float(np.dot(centred, centred))


def _runs(low: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return starts and ends (exclusive) of the stretches of low batches."""
    edges = np.diff(low.astype(np.int64), prepend=0, append=0)
    return np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)


def _short(curve: MfuCurve, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.bool_]:
    lasted = curve.at[np.maximum(ends - 1, 0)] - curve.at[starts] if len(starts) else np.zeros(0)
    return (ends - starts <= SHORT_STEPS) | (lasted <= SHORT_SECONDS)


def _without(low: NDArray[np.bool_], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Mark the low batches that are in none of these stretches."""
    mask = np.ones(len(low), dtype=np.bool_)
    for start, end in zip(starts, ends, strict=True):
        mask[start:end] = False
    return mask


def _dips(curve: MfuCurve, relative: Floats, starts: NDArray[np.int64], ends: NDArray[np.int64], *, deep: bool) -> Dips:
    lowest = np.array([relative[start:end].min() for start, end in zip(starts, ends, strict=True)])
    chosen = (lowest < DEEP) == deep if len(lowest) else np.zeros(0, dtype=np.bool_)
    starts, ends, lowest = starts[chosen], ends[chosen], lowest[chosen]
    if not len(starts):
        return Dips(0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    gaps, steps = np.diff(curve.at[starts]), np.diff(curve.step[starts])
    middle = (curve.at[0] + curve.at[-1]) / 2
    return Dips(
        count=len(starts),
        share=float((ends - starts).sum()) / len(relative),
        depth=float(np.median(lowest)),
        gap_seconds=float(np.median(gaps)) if len(gaps) else 0.0,
        gap_cv_seconds=_variation(gaps),
        gap_cv_steps=_variation(steps),
        late=float((curve.at[starts] > middle).mean()),
        spread=float((curve.at[starts[-1]] - curve.at[starts[0]]) / max(curve.at[-1] - curve.at[0], 1e-9)),
    )


def _variation(gaps: Floats) -> float:
    """Return a robust coefficient of variation: a missed dip doubles one gap and must not hide the regularity."""
    if len(gaps) < 2 or np.median(gaps) <= 0:
        return float("inf")
    return 1.4826 * float(np.median(np.abs(gaps - np.median(gaps)))) / float(np.median(gaps))


def _median(values: Floats) -> float:
    """Return the median of a few values; numpy's checks cost more than that (`benchmarks/signature_confusion.py`)."""
    ordered = np.sort(values)
    return float(ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def _medians(rows: Floats, chosen: NDArray[np.bool_]) -> Floats:
    """Return the median of each row's chosen values."""
    ordered = np.sort(np.where(chosen, rows, np.inf), axis=1)
    row, size = np.arange(len(rows)), chosen.sum(axis=1)
    medians: Floats = (ordered[row, (size - 1) // 2] + ordered[row, size // 2]) / 2
    return medians


def _distances(rows: Floats, centres: Floats, chosen: NDArray[np.bool_]) -> Floats:
    """Return the sum of the distances of each row's chosen values from its centre, or from a centre for each value."""
    away = np.subtract(rows, centres, out=np.zeros(chosen.shape), where=chosen)
    total: Floats = np.abs(away).sum(axis=1)
    return total


def _blocks(curve: MfuCurve, kept: NDArray[np.bool_]) -> Floats:
    """Return the median ratio of up to BLOCKS parts with equally many batches, without the short dips."""
    ratio = curve.ratio[kept]
    count = min(BLOCKS, max(len(ratio) // 3, 1))
    size, more = divmod(len(ratio), count)  # the first ones have one more, as with numpy.array_split
    cut = more * (size + 1)
    parts = (ratio[:cut].reshape(more, size + 1), ratio[cut:].reshape(count - more, size))
    return np.concatenate([_medians(part, np.ones(part.shape, dtype=np.bool_)) for part in parts if len(part)])


def _fit(curve: MfuCurve, kept: NDArray[np.bool_]) -> Fit:
    level = _blocks(curve, kept)
    flat = float(np.abs(level - _median(level)).mean())
    slope, line = _line(level)
    cut, step = best_step(level)
    start, end, spell = _best_spell(level)
    outside = np.concatenate([level[:start], level[end:]])
    hinge, fallen = best_hinge(level)
    return Fit(
        flat=flat,
        line=line,
        slope=slope,
        step=step,
        before=_median(level[:cut]) if cut else _median(level),
        after=_median(level[cut:]),
        spell=spell,
        inside=_median(level[start:end]) if end > start else _median(level),
        outside=_median(outside) if len(outside) else _median(level),
        hinge=hinge,
        fallen=fallen,
    )


def _line(level: Floats) -> tuple[float, float]:
    """Return (change over the window, mean absolute error) of the Theil-Sen line: the median of all slopes."""
    if len(level) < 4:
        return 0.0, float("inf")
    x = np.arange(len(level), dtype=float)
    i, j = np.triu_indices(len(level), 1)
    slope = _median((level[j] - level[i]) / (x[j] - x[i]))
    rest = level - slope * x
    return slope * (len(level) - 1), float(np.abs(rest - _median(rest)).mean())


def best_step(level: Floats) -> tuple[int, float]:
    """Return (index of the first value after the change, mean absolute error) of the best single step."""
    if len(level) < 2:
        return 0, float("inf")
    (_, before), (_, after) = _beginnings(level), _beginnings(level[::-1])
    errors = (before[:-1] + after[::-1][1:]) / len(level)
    best = int(np.argmin(errors))
    return best + 1, float(errors[best])


def _beginnings(level: Floats) -> tuple[Floats, Floats]:
    """Return the medians of the first value, the first two and so on, and the sums of the distances from each."""
    chosen = np.tri(len(level), dtype=np.bool_)
    rows = np.broadcast_to(level, chosen.shape)
    medians = _medians(rows, chosen)
    return medians, _distances(rows, medians[:, None], chosen)


def best_hinge(level: Floats) -> tuple[float, float]:
    """Return (mean absolute error, fall along the line) of the best flat beginning with a line that goes on from it."""
    knees = np.arange(1, len(level) - LEAST_LINE + 1)[:, None]
    if not len(knees):
        return float("inf"), 0.0
    medians, distances = _beginnings(level)
    steps = np.arange(1, len(level) + 1, dtype=float) - knees
    later = steps > 0
    rise = np.subtract(level, medians[: len(knees), None], out=np.zeros(later.shape), where=later)
    slopes = _medians(np.divide(rise, steps, out=np.zeros(later.shape), where=later), later)
    errors = (distances[: len(knees)] + _distances(rise, slopes[:, None] * steps, later)) / len(level)
    falls = -slopes * later.sum(axis=1)
    best = np.lexsort((falls, errors))[0]
    return float(errors[best]), float(falls[best])


def _best_spell(level: Floats) -> tuple[int, int, float]:
    """Return (first block, block after the last, mean absolute error) of the best spell between equal levels.

    Sums of squares find the position quickly for all pairs; the error is of the same kind as that of the other fits.
    """
    count = len(level)
    if count < 3:
        return 0, 0, float("inf")
    sums, squares = np.concatenate([[0], np.cumsum(level)]), np.concatenate([[0], np.cumsum(level**2)])
    start, end = np.triu_indices(count + 1, 1)
    chosen = (start > 0) & (end - start < count)
    start, end = start[chosen], end[chosen]
    inside, size = sums[end] - sums[start], end - start
    rest = squares[-1] - inside**2 / size - (sums[-1] - inside) ** 2 / (count - size)
    best = int(np.argmin(rest))
    first, after = int(start[best]), int(end[best])
    outside = np.concatenate([level[:first], level[after:]])
    return first, after, (_deviation(level[first:after]) + _deviation(outside)) / count


def _deviation(values: Floats) -> float:
    return float(np.abs(values - _median(values)).sum())


def _resets(curve: MfuCurve, kept: NDArray[np.bool_]) -> float:
    """Return the share of the decline in one attempt that its restart reversed: near 1 for leaks."""
    attempts = np.unique(curve.attempt)
    taken_back = []
    for earlier, later in itertools.pairwise(attempts):
        old, new = curve.ratio[kept & (curve.attempt == earlier)], curve.ratio[kept & (curve.attempt == later)]
        if len(old) < 30 or len(new) < 10:
            continue
        best, worst, fresh = np.median(old[: len(old) // 5]), np.median(old[-len(old) // 5 :]), np.median(new[:20])
        if best - worst > 0.03 * best:
            taken_back.append(float((fresh - worst) / (best - worst)))
    return max(taken_back, default=0.0)
