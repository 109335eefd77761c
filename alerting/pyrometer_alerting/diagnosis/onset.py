"""When a run fell: from its MFU, from its stalls, or from the step that never ended."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

import pandas as pd

from pyrometer_alerting.diagnosis.look import ANOTHER_DROP_SECONDS, LOOK_BACK_SECONDS, STANDS_SECONDS, Questions, middle
from pyrometer_alerting.diagnosis.run_matchers import selected
from pyrometer_alerting.model.alert_names import STALLS
from pyrometer_alerting.model.incident import Incident
from pyrometer_kit.prometheus import Prometheus, Series

STEP_SECONDS = 5  # the smallest scrape interval in use
RECOVERED = 0.95  # of the good level
RECOVERED_SECONDS = 30.0
STALL = 2.0  # times the usual step: what the curve's classes call deep
LEAST_PAUSE = 0.2  # of the usual step: less is its noise
BETWEEN_STALLS_SECONDS = 300.0  # longer pauses are between two troubles


def mfu_of(prometheus: Prometheus, incident: Incident, now: float, onset: float | None) -> pd.Series[float]:
    """Return the run's MFU by time, from before the trouble on; one batch per 5 s shows where it fell.

    Raises:
        PrometheusError: the query failed.
    """
    began = incident.started_at if onset is None else onset
    start = max(min(began, now) - LOOK_BACK_SECONDS, now - 3 * 3600.0)
    step = max(STEP_SECONDS, round((now - start) / 2000))
    where = selected(incident.cluster, incident.run, incident.job_id)
    query = f"max(avg_over_time(pyrometer_train_batch_mfu_ratio{where}[{step}s]))"
    result = prometheus.range(query, start, now, step)
    return _series(result[0]) if result else pd.Series(dtype=float)


def drops_of(
    mfu: pd.Series[float], known: Sequence[float], recovered: float | None
) -> tuple[tuple[float, ...], float | None]:
    """Return the onsets of the drops and when the run recovered.

    The first onset is found once and kept. Another drop is one after a recovery.
    """
    if not known:
        onset = drop_onset(mfu)
        return ((onset,) if onset is not None else ()), None
    if len(mfu) < 6:
        return tuple(known), recovered
    smooth = mfu.rolling(3, center=True, min_periods=1).median()
    before = smooth[smooth.index < known[0]]
    good = float(before.quantile(0.9)) if len(before) else float(smooth.quantile(0.9))
    since = smooth[smooth.index >= known[-1]]
    well = since[since >= RECOVERED * good]
    present_well = len(since) > 0 and bool(since.iloc[-3:].median() >= RECOVERED * good)
    if present_well:
        low = since[since < RECOVERED * good]
        back = well[well.index > low.index[-1]] if len(low) else well
        lasted = float(back.index[-1] - back.index[0]) if len(back) else 0.0
        return tuple(known), float(back.index[0]) if lasted >= RECOVERED_SECONDS else recovered
    if recovered is None:
        return tuple(known), None
    again = drop_onset(smooth[smooth.index >= recovered])
    if again is not None and again - known[-1] > ANOTHER_DROP_SECONDS:
        return (*known, again), None
    return tuple(known), None


def has_run_since(mfu: pd.Series[float], drop: float) -> bool:
    """Return whether the run has ended batches after a drop: one that stopped then has no other drop."""
    return bool((mfu.index > drop + ANOTHER_DROP_SECONDS).any())


def next_onset(mfu: pd.Series[float], recovered: float | None, fired: float) -> float:
    """Return the onset of the drop of another episode, after the end of the last; without a fall, when it fired."""
    onset = drop_onset(mfu[mfu.index >= recovered] if recovered is not None else mfu)
    return fired if onset is None else onset


def drop_onset(mfu: pd.Series[float]) -> float | None:
    """Return when the MFU last fell from its good level to the present one; None if it is not lower now."""
    if len(mfu) < 6:
        return None
    smooth = mfu.rolling(3, center=True, min_periods=1).median()
    good, present = float(smooth.quantile(0.9)), float(smooth.iloc[-3:].median())
    if present > RECOVERED * good:
        return None
    high = smooth[smooth > (good + present) / 2]
    later = smooth.index[smooth.index > high.index[-1]] if len(high) else smooth.index
    return float(later[0]) if len(later) else None


def _series(series: Series) -> pd.Series[float]:
    points = dict(series.points)
    values: pd.Series[float] = pd.Series(list(points.values()), index=list(points), dtype=float)
    return values.dropna()


def stalls(incident: Incident) -> bool:
    """Return whether the run stalls now and then, and is fast in between."""
    return any(alert.name == STALLS and alert.firing for alert in incident.members)


def onset_without_a_fall(questions: Questions) -> float | None:
    """Return since when a run is stopped or stalls again and again, which no level of its MFU shows; None otherwise.

    Raises:
        PrometheusError: a query failed.
    """
    return stalls_since(questions) if stalls(questions.incident) else stopped_at(questions)


def stalls_since(questions: Questions) -> float | None:
    """Return when the first of the stalls began that have come one after the other since.

    Raises:
        PrometheusError: a query failed.
    """
    run, window = questions.of_run(), f"[{2 * LOOK_BACK_SECONDS:.0f}s]"
    steps = [
        point
        for series in questions.instant(f"pyrometer_train_batch_step_seconds{run}{window}")
        for point in series.points
    ]
    tags = questions.instant(f"pyrometer_train_batch_tag{run}{window}")
    planned = {at for series in tags for at, _one in series.points}
    usual = middle(seconds for _at, seconds in steps)
    if usual is None:
        return None
    stalled = [(at, seconds) for at, seconds in steps if seconds > STALL * usual and at not in planned]
    first: float | None = None
    last = questions.now
    for at, seconds in sorted(stalled or _long_pauses(steps, planned, usual), reverse=True):
        if last - at > BETWEEN_STALLS_SECONDS:
            break
        first, last = at - seconds, at
    return first


def _long_pauses(
    steps: Iterable[tuple[float, float]], planned: Container[float], usual: float
) -> list[tuple[float, float]]:
    """Return the tagged steps, such as checkpoints, whose pause is far longer than the run's shorter ones."""
    pauses = sorted((seconds - usual, at, seconds) for at, seconds in steps if at in planned)
    least = max(STALL * pauses[len(pauses) // 4][0], LEAST_PAUSE * usual) if pauses else 0.0
    return [(at, seconds) for pause, at, seconds in pauses if pause > least]


def stopped_at(questions: Questions) -> float | None:
    """Return when a stopped run should have ended the step that never ended; None while it moves.

    Raises:
        PrometheusError: a query failed.
    """
    run = questions.of_run()
    last = questions.values(f"max(pyrometer_train_last_step_timestamp_seconds{run})", ()).get(())
    if last is None or questions.now - last < STANDS_SECONDS:
        return None
    batches = f"pyrometer_train_batch_step_seconds{run}[{LOOK_BACK_SECONDS:.0f}s]"
    usual = questions.values(f"max(quantile_over_time(0.5, {batches}))", (), last).get((), 0.0)
    return min(last + usual, questions.now)
