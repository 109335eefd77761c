"""Diagnose an incident end to end. Import this late, in the workers: it needs pandas, which is slow to import."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from pyrometer_alerting.diagnosis.causes import cause_alerts, diagnose
from pyrometer_alerting.diagnosis.cost import add_up
from pyrometer_alerting.diagnosis.evidence import Evidence, gather
from pyrometer_alerting.diagnosis.examination import daily_wave_of_run, examine
from pyrometer_alerting.diagnosis.signature import Drop
from pyrometer_alerting.model.alert_names import FELL
from pyrometer_alerting.model.incident import ChartCurve, Cost, Diagnosis, Incident
from pyrometer_alerting.sources.batches import active_runs
from pyrometer_kit.prometheus import Prometheus, PrometheusError

__all__ = ["active_runs", "daily_wave_of_run", "examine", "investigate"]

CURVE_POINTS = 20  # the limit of Slack's chart block
BEFORE_SECONDS, LONGEST_SECONDS = 300.0, 3 * 3600.0


def investigate(prometheus: Prometheus, incident: Incident, others: list[Incident], now: float) -> Diagnosis:
    """Query Prometheus about the run's nodes and rank the causes; the first time only with quick queries.

    For a resolved incident only the cost is completed.
    """
    if incident.resolved_at is not None and incident.diagnosis is not None:
        return _closed(prometheus, incident, incident.diagnosis, incident.resolved_at)
    alerts, first = cause_alerts(others, incident.cluster), incident.diagnosis is None
    drop = _drop(incident)
    evidence = gather(prometheus, incident.cluster, incident.run, now, alerts=alerts, quick=first, drop=drop)
    found = diagnose(incident, evidence, others, now)
    if evidence.looked is None:
        return found
    begin = _begin(incident, found)
    frame, expected = evidence.looked.frame, evidence.looked.expectation.mfu
    return replace(
        found, cost=_cost(prometheus, incident, evidence, begin, now), curve=chart_curve(frame, expected, begin)
    )


def chart_curve(frame: pd.DataFrame, expected: float, begin: float) -> ChartCurve | None:
    """Return the batches from shortly before the drop until now in equal intervals, without empty ones."""
    clean = frame[~frame["tagged"].astype(bool)]
    if clean.empty:
        return None
    end = float(clean["at"].iloc[-1])
    shown = clean[clean["at"] >= max(begin - BEFORE_SECONDS, end - LONGEST_SECONDS)]
    if len(shown) < 2:
        return None
    start = float(shown["at"].iloc[0])
    width = max((end - start) / CURVE_POINTS, 1e-3)
    place = np.minimum((shown["at"] - start) // width, CURVE_POINTS - 1)
    grouped = shown.groupby(place)
    at = start + (grouped["mfu"].median().index.to_numpy(dtype=float) + 0.5) * width
    return ChartCurve(
        at=tuple(round(float(time), 1) for time in at),
        median=tuple(round(float(value), 4) for value in grouped["mfu"].median()),
        lowest=tuple(round(float(value), 4) for value in grouped["mfu"].min()),
        expected=expected,
    )


def _drop(incident: Incident) -> Drop | None:
    """Return the drop that the incident reports; None if no rule saw the run fall, which may always have been low."""
    fired = min((alert.starts_at for alert in incident.members if alert.name == FELL), default=None)
    onset = incident.diagnosis.onset if incident.diagnosis is not None else None
    return None if fired is None else Drop(fired, onset)


def _begin(incident: Incident, found: Diagnosis) -> float:
    known = incident.diagnosis.onset if incident.diagnosis is not None else None
    onset = known if known is not None else found.onset
    return onset if onset is not None else incident.started_at


def _cost(prometheus: Prometheus, incident: Incident, evidence: Evidence, begin: float, now: float) -> Cost | None:
    known = incident.diagnosis.cost if incident.diagnosis is not None else None
    looked = evidence.looked
    if evidence.gpus.empty or looked is None:
        return known
    try:
        return add_up(
            prometheus,
            incident.cluster,
            incident.run,
            known=known,
            begin=begin,
            end=now,
            expected=looked.expectation.mfu,
            gpus=len(evidence.gpus),
            stands=looked.verdict is not None and looked.verdict.kind == "stopped",
        )
    except PrometheusError:
        return known  # the next diagnosis continues from there


def _closed(prometheus: Prometheus, incident: Incident, known: Diagnosis, end: float) -> Diagnosis:
    if known.cost is None or known.cost.until >= end:
        return known
    try:
        cost = add_up(
            prometheus,
            incident.cluster,
            incident.run,
            known=known.cost,
            begin=known.cost.until,
            end=end,
            expected=known.cost.expected,
            gpus=known.cost.gpus,
        )
    except PrometheusError:
        return known
    return replace(known, cost=cost)
