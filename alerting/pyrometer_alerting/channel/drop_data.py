"""Query what the picture of a drop shows: the batches, the band, the culprit's clock or link."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from pyrometer_alerting.channel.card import headline, sign
from pyrometer_alerting.diagnosis.batches import batches
from pyrometer_alerting.model.incident import Cause, Incident
from pyrometer_kit.prometheus import Prometheus, Series
from pyrometer_kit.promql import matching, quoted

BEFORE_SECONDS, LONGEST_SECONDS = 600.0, 2 * 3600.0
SHARE_BEFORE = 0.5  # at least this share of the event's own length is shown before it
GRID_POINTS = 240
REASONS = ("hw_thermal", "sw_thermal", "hw_power_brake", "hw_slowdown")


@dataclass(frozen=True)
class Line:
    """A line below the batches: Unix seconds and values in its unit."""

    name: str
    unit: str
    at: tuple[float, ...]
    values: tuple[float, ...]


@dataclass(frozen=True)
class DropPicture:
    """Times in Unix seconds, MFU as ratios; `end` is None while the drop lasts, `until` is the end of the picture."""

    title: str
    subtitle: str
    at: tuple[float, ...]
    mfu: tuple[float, ...]
    tagged: tuple[bool, ...]
    expected: float
    band: tuple[float, float]
    begin: float
    end: float | None
    until: float
    culprit: str = ""
    lines: tuple[Line, ...] = ()
    throttled: tuple[tuple[float, float], ...] = ()
    downs: tuple[float, ...] = ()


def drop_picture_of(prometheus: Prometheus, incident: Incident, now: float) -> DropPicture | None:
    """Return what the picture of an incident shows; None without a curve or batches.

    Raises:
        PrometheusError: a query failed.
    """
    diagnosis = incident.diagnosis
    if diagnosis is None or diagnosis.curve is None:
        return None
    begin = diagnosis.onset if diagnosis.onset is not None else incident.started_at
    end = incident.resolved_at
    until = min(now, end + 120) if end is not None else now
    start = max(begin - max(BEFORE_SECONDS, SHARE_BEFORE * (until - begin)), until - LONGEST_SECONDS)
    frame = batches(prometheus, incident.cluster, incident.run, start, until, job_id=incident.job_id)
    if frame.empty:
        return None
    cause = next((candidate for candidate in diagnosis.causes if candidate.labels), None)
    drop = DropPicture(
        title=headline(incident).removeprefix(sign(incident)).strip(),
        subtitle=_subtitle(incident),
        at=tuple(frame["at"].astype(float)),
        mfu=tuple(frame["mfu"].astype(float)),
        tagged=tuple(frame["tagged"].astype(bool)),
        expected=diagnosis.curve.expected,
        band=band(frame, begin, diagnosis.curve.expected),
        begin=begin,
        end=end,
        until=until,
    )
    return drop if cause is None else _with_culprit(prometheus, incident.cluster, drop, cause)


def band(frame: pd.DataFrame, begin: float, expected: float) -> tuple[float, float]:
    """Return the range of nine in ten batches before the drop; with too few of them, 3 % around the expected MFU."""
    before = frame[(frame["at"] < begin) & ~frame["tagged"].astype(bool)]["mfu"].astype(float)
    if len(before) < 20:
        return 0.97 * expected, 1.03 * expected
    return float(before.quantile(0.05)), float(before.quantile(0.95))


def _subtitle(incident: Incident) -> str:
    shape = incident.diagnosis.shape if incident.diagnosis is not None else None
    pieces = [incident.cluster, f"run {incident.run}" if incident.run else ""]
    if shape is not None and shape.is_known:
        pieces.append(f"curve: {shape.said}{shape.confidence_note}")
    return "  \u00b7  ".join(name for name in pieces if name)


def _with_culprit(prometheus: Prometheus, cluster: str, drop: DropPicture, cause: Cause) -> DropPicture:
    labels = cause.labels or {}
    where = f"cluster={quoted(cluster)},{matching('node', [labels.get('node', '')])}"
    step = max((drop.until - drop.at[0]) / GRID_POINTS, 5.0)

    def asked(query: str) -> list[Series]:
        return prometheus.range(query, drop.at[0], drop.until, step)

    culprit = f"{cause.part}: {cause.cause}"
    if labels.get("gpu"):
        mine = f"{where},gpu={quoted(labels['gpu'])}"
        lines = [
            _line("its clock", asked(f"max(DCGM_FI_DEV_SM_CLOCK{{{mine}}})")),
            _line("node's median", asked(f"quantile(0.5, DCGM_FI_DEV_SM_CLOCK{{{where}}})")),
        ]
        counter = f"pyrometer_gpu_clock_event_seconds_total{{{mine},{matching('reason', REASONS)}}}"
        return _replace(drop, culprit, lines, throttled=stretches(asked(f"max({counter})"), step))
    if labels.get("device"):
        port = f"{where},device={quoted(labels['device'])}"
        rises = risen(asked(f"max(pyrometer_nic_link_down_events_total{{{port}}})"))
        return _replace(drop, culprit, [], downs=rises)
    return _replace(drop, culprit, [])


def _replace(
    drop: DropPicture,
    culprit: str,
    lines: list[Line | None],
    *,
    throttled: tuple[tuple[float, float], ...] = (),
    downs: tuple[float, ...] = (),
) -> DropPicture:
    present = tuple(line for line in lines if line is not None)
    return DropPicture(**{**vars(drop), "culprit": culprit, "lines": present, "throttled": throttled, "downs": downs})


def _line(name: str, result: list[Series]) -> Line | None:
    points = result[0].points if result else ()
    if len(points) < 2:
        return None
    return Line(name, "SM clock, MHz", tuple(time for time, _ in points), tuple(value for _, value in points))


def risen(result: list[Series]) -> tuple[float, ...]:
    """Return the times at which a counter rose."""
    if not result or len(result[0].points) < 2:
        return ()
    at, values = np.array(result[0].points, dtype=float).T
    return tuple(float(time) for time in at[1:][np.diff(values) > 0])


def stretches(result: list[Series], step: float) -> tuple[tuple[float, float], ...]:
    """Return (start, end) of the stretches in which a counter of seconds rose, neighbouring rises merged."""
    merged: list[tuple[float, float]] = []
    for time in risen(result):
        begin = time - step
        if merged and begin <= merged[-1][1] + step:
            merged[-1] = (merged[-1][0], time)
        else:
            merged.append((begin, time))
    return tuple(merged)
