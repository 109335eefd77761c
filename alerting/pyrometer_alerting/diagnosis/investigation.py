"""Diagnose an incident end to end. Import this late, in the workers: it needs pandas, which is slow to import."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from pyrometer_alerting.diagnosis.batches import Floats, active_runs
from pyrometer_alerting.diagnosis.catalog import Catalog, load
from pyrometer_alerting.diagnosis.conclusion import concluded
from pyrometer_alerting.diagnosis.cost import add_up, settled_at
from pyrometer_alerting.diagnosis.curve_features import first_stall
from pyrometer_alerting.diagnosis.death import restart_note
from pyrometer_alerting.diagnosis.examination import daily_wave_of_run, examine
from pyrometer_alerting.diagnosis.gather import Evidence, gather
from pyrometer_alerting.diagnosis.run_matchers import selected
from pyrometer_alerting.diagnosis.signature import Drop
from pyrometer_alerting.diagnosis.weights import Weights
from pyrometer_alerting.model.alert_names import FELL, LOW
from pyrometer_alerting.model.incident import Cause, ChartCurve, Cost, Diagnosis, Incident
from pyrometer_kit.prometheus import Prometheus, PrometheusError
from pyrometer_kit.promql import quoted

__all__ = ["active_runs", "daily_wave_of_run", "examine", "investigate"]

CURVE_POINTS = 20  # the limit of Slack's chart block
GOOD = 0.98  # of the best: below this a decline has begun
NOW_SECONDS, BEST_SECONDS, NOW_BATCHES = 30.0, 600.0, 5
BEFORE_SECONDS, LONGEST_SECONDS = 300.0, 3 * 3600.0
RETURNING = ("regular_stalls", "rare_stalls")  # no rule sees the first ones: the last before the alert is no beginning


def investigate(
    prometheus: Prometheus, incident: Incident, others: list[Incident], now: float, catalog: Catalog | None = None
) -> Diagnosis:
    """Query Prometheus about the run's nodes and rank the causes; the first time only with quick queries.

    For a resolved incident only the cost is completed.
    """
    if incident.resolved_at is not None and incident.diagnosis is not None:
        return _closed(prometheus, incident, incident.diagnosis, incident.resolved_at)
    quick, catalog = incident.diagnosis is None, catalog or load()
    evidence = gather(prometheus, incident, others, now, quick=quick, drop=_drop(incident), catalog=catalog)
    known = incident.diagnosis.run_links if incident.diagnosis is not None else ()
    ask = evidence.complete and not known
    links = run_links(prometheus, incident.cluster, incident.run, now, incident.job_id) if ask else known
    diagnosis = replace(
        diagnose(incident, evidence, others, now, Weights(catalog)),
        run_links=links,
        user=_user(prometheus, incident, now, ask=evidence.complete),
        restart=restart_note(prometheus, incident, now),
    )
    diagnosis = replace(diagnosis, causes=_wired(prometheus, incident, diagnosis.causes, now))
    if evidence.looked is None:
        return diagnosis
    begin = _begin(incident, diagnosis, evidence)
    frame, expected = evidence.looked.frame, evidence.looked.expectation.mfu
    return replace(
        diagnosis,
        cost=_cost(prometheus, incident, evidence, begin, now),
        curve=chart_curve(frame, expected, begin),
        slower=slower_now(frame, expected, diagnosis.onset),
    )


def diagnose(
    incident: Incident, evidence: Evidence, others: Sequence[Incident], now: float, weights: Weights
) -> Diagnosis:
    """Rank the causes from the evidence, and revise the conclusion only for evidence against it."""
    before = incident.diagnosis
    shape = evidence.looked.shape() if evidence.looked is not None else None
    found = Diagnosis(
        now,
        missing=evidence.missing,
        onset=_onset(before, evidence),
        shape=shape,
        strangers=evidence.strangers,
        facts=evidence.facts,
        roster=evidence.roster if evidence.roster.gpus else None,
        drops=evidence.drops,
        recovered=evidence.recovered,
        answered=evidence.answered,
    )
    kept = before.shape if before is not None else None
    return concluded(incident, replace(found, shape=shape or kept), others, weights)


def _onset(before: Diagnosis | None, evidence: Evidence) -> float | None:
    """Return the onset of the episode's first drop, which is found once; None in an episode without an answer yet."""
    known = before.onset if before is not None else None
    seen = before.drops if before is not None else ()
    if known is not None:
        return known
    fresh = evidence.drops[len(seen) :] or evidence.drops[-1:]  # the same drop, of a run that stopped then
    return fresh[0] if fresh else None


def chart_curve(frame: pd.DataFrame, expected: float, begin: float) -> ChartCurve | None:
    """Return the batches from shortly before the drop until now in equal intervals, without empty ones."""
    clean = frame[~frame["tagged"].astype(bool)]
    if clean.empty:
        return None
    end = float(clean["at"].iloc[-1])
    window = clean[clean["at"] >= max(begin - BEFORE_SECONDS, end - LONGEST_SECONDS)]
    if len(window) < 2:
        return None
    start = float(window["at"].iloc[0])
    width = max((end - start) / CURVE_POINTS, 1e-3)
    place = np.minimum((window["at"] - start) // width, CURVE_POINTS - 1)
    grouped = window.groupby(place)
    at = start + (grouped["mfu"].median().index.to_numpy(dtype=float) + 0.5) * width
    return ChartCurve(
        at=tuple(round(float(time), 1) for time in at),
        median=tuple(round(float(value), 4) for value in grouped["mfu"].median()),
        lowest=tuple(round(float(value), 4) for value in grouped["mfu"].min()),
        expected=expected,
    )


def slower_now(frame: pd.DataFrame, expected: float, onset: float | None = None) -> float | None:
    """Return the share of its MFU that the run lacks now: the median of 30 s, at least of five batches.

    It is compared with the ten minutes before the onset; without them, with the expected MFU.
    """
    clean = frame[~frame["tagged"].astype(bool)]
    if clean.empty or expected <= 0:
        return None
    if onset is not None:
        before = clean[(clean["at"] <= onset) & (clean["at"] > onset - BEST_SECONDS)]["mfu"]
        expected = float(before.median()) if len(before) >= NOW_BATCHES else expected
    recent = clean[clean["at"] > float(clean["at"].iloc[-1]) - NOW_SECONDS]["mfu"]
    newest = recent if len(recent) >= NOW_BATCHES else clean["mfu"].iloc[-NOW_BATCHES:]
    return 1 - float(newest.median()) / expected


def _drop(incident: Incident) -> Drop | None:
    """Return the drop that the incident reports; None if no rule saw the run fall, which may always have been low."""
    fired = min((alert.starts_at for alert in incident.members if alert.name == FELL), default=None)
    onset = incident.diagnosis.onset if incident.diagnosis is not None else None
    return None if fired is None else Drop(fired, onset)


def _begin(incident: Incident, diagnosis: Diagnosis, evidence: Evidence) -> float:
    """Return the time from which the loss counts: the drop, the first stall, a decline's beginning, else the alert."""
    begin = diagnosis.onset if diagnosis.onset is not None else incident.started_at
    looked = evidence.looked
    kind = looked.verdict.kind if looked is not None and looked.verdict is not None else ""
    low = kind.endswith("_from_start") or any(alert.name == LOW for alert in incident.members)
    if looked is not None and diagnosis.onset is None and low:
        attempt = looked.frame[looked.frame["attempt"] == looked.frame["attempt"].max()]
        return min(begin, float(attempt["at"].iloc[0]))
    if looked is not None and kind in RETURNING:
        return min(begin, first_stall(looked.curve, begin))
    if looked is None or kind != "gradual_decline":
        return begin
    return min(begin, decline_onset(looked.curve.at, looked.curve.ratio, begin))


def decline_onset(at: Floats, ratio: Floats, begin: float) -> float:
    """Return when a declining curve was last as good as at its best, before `begin`."""
    smooth = pd.Series(ratio).rolling(9, center=True, min_periods=1).median().to_numpy(dtype=float)
    good = at[(smooth >= GOOD * float(np.quantile(smooth, 0.9))) & (at < begin)] if len(at) else at
    return float(good[-1]) if len(good) else begin


def _cost(prometheus: Prometheus, incident: Incident, evidence: Evidence, begin: float, now: float) -> Cost | None:
    earlier = incident.diagnosis.cost if incident.diagnosis is not None else None
    examination = evidence.looked
    if not evidence.roster.gpus or examination is None:
        return earlier
    try:
        return add_up(
            prometheus,
            incident.cluster,
            incident.run,
            job_id=incident.job_id,
            known=_of_this_drop(earlier, evidence.drops),
            begin=begin,
            end=now,
            expected=examination.expectation.mfu,
            gpus=evidence.roster.size,
            stands=examination.verdict is not None and examination.verdict.kind == "stopped",
        )
    except PrometheusError:
        return earlier  # the next diagnosis continues from there


def _of_this_drop(known: Cost | None, drops: Sequence[float]) -> Cost | None:
    """Return the known cost, counted on from the newest drop: what lies between two drops was no loss."""
    is_past = known is not None and drops and drops[-1] > known.until
    return settled_at(known, drops[-1]) if known is not None and is_past else known


def _closed(prometheus: Prometheus, incident: Incident, diagnosis: Diagnosis, end: float) -> Diagnosis:
    if diagnosis.cost is None or diagnosis.cost.until >= end:
        return diagnosis
    try:
        cost = add_up(
            prometheus,
            incident.cluster,
            incident.run,
            job_id=incident.job_id,
            known=diagnosis.cost,
            begin=diagnosis.cost.since or diagnosis.cost.until,
            end=end,
            expected=diagnosis.cost.expected,
            gpus=diagnosis.cost.gpus,
        )
    except PrometheusError:
        return diagnosis
    # A run that stood to the end has no newer batch, and what was told of it until then stays.
    return replace(diagnosis, cost=cost) if cost.until >= diagnosis.cost.until else diagnosis


def _wired(prometheus: Prometheus, incident: Incident, causes: tuple[Cause, ...], now: float) -> tuple[Cause, ...]:
    """Return the causes with the switch port at the other end of the first one's port, where the fabric is known."""
    first = causes[0].labels or {} if causes else {}
    if not first.get("device"):
        return causes
    told = incident.diagnosis.causes[:1] if incident.diagnosis is not None else ()
    found = [
        cause.labels or {} for cause in told if cause.part == causes[0].part and "switch_port" in (cause.labels or {})
    ]
    if not found:
        where = ",".join(f"{name}={quoted(first.get(name, ''))}" for name in ("node", "device", "port"))
        query = f"pyrometer_fabric_port_info{{cluster={quoted(incident.cluster)},{where}}}"
        try:
            found = [series.labels for series in prometheus.instant(query, now)]
        except PrometheusError:
            return causes
    ends = {name: found[0][name] for name in ("switch", "switch_port") if found and found[0].get(name)}
    return (replace(causes[0], labels={**first, **ends}), *causes[1:]) if len(ends) == 2 else causes


def _user(prometheus: Prometheus, incident: Incident, now: float, *, ask: bool) -> str:
    """Return the user of the run's job, asked for until it is known; empty where several users have a GPU of it."""
    known = incident.diagnosis.user if incident.diagnosis is not None else ""
    if known or not ask:
        return known
    run = selected(incident.cluster, incident.run, incident.job_id)
    jobs = f"pyrometer_gpu_job_info{{cluster={quoted(incident.cluster)}}}"
    query = f"group by (user) ({jobs} and on (cluster, node, gpu) pyrometer_train_rank_info{run})"
    try:
        users = {series.labels.get("user", "") for series in prometheus.instant(query, now)}
    except PrometheusError:
        return ""
    return users.pop() if len(users) == 1 else ""


MAX_LINKS = 4
# A run that died an hour ago is still asked about; its exporter forgets it after ten minutes.
WINDOW = "1h"


def run_links(
    prometheus: Prometheus, cluster: str, run: str, now: float, job_id: str = ""
) -> tuple[tuple[str, str], ...]:
    """Return (name, address) of the latest attempt's pages; none where Prometheus doesn't answer: no evidence."""
    where = selected(cluster, run, job_id)
    try:
        found = prometheus.instant(f"last_over_time(pyrometer_train_run_link_info{where}[{WINDOW}])", now)
    except PrometheusError:
        return ()
    by_age = sorted(found, key=lambda series: (int(series.labels.get("attempt") or 0), series.labels.get("url", "")))
    newest = {series.labels.get("name", ""): series.labels.get("url", "") for series in by_age}
    return tuple(sorted(newest.items())[:MAX_LINKS])
