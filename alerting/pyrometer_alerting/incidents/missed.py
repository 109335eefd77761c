"""Find alerts that fired and ended without being delivered, and report what a lost database no longer knows.

Prometheus' own record of its alerts has the former; all that fires is read again after the latter.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence

from pyrometer_alerting.incidents.intake import OUR_ALERT
from pyrometer_alerting.incidents.own_alerts import missed, state_lost
from pyrometer_alerting.incidents.storage.store import LOST_FACT, REFILL_FACT, Store, Transaction
from pyrometer_alerting.incidents.upstream import FIRING, Upstream, is_subset, without_state
from pyrometer_alerting.model.alert_names import COMPONENTS, is_signal
from pyrometer_alerting.model.incident import Alert, Incident, part_of
from pyrometer_alerting.model.text import clock_utc, duration
from pyrometer_kit.prometheus import Prometheus, PrometheusError, Series

_log = logging.getLogger(__name__)

SWEPT_FACT = "swept_until"
ALIVE_FACT = "alive_at"
STEP_SECONDS = 15.0
MOST_SECONDS = 24 * 3600.0  # Prometheus returns at most 11,000 points of a series: 15 s over 45 h
SLACK_SECONDS = 60.0  # tolerance between a delivery's times and Prometheus' samples


class MissedAlertScan:
    """Scans each period once, `late` seconds after it, so that a late delivery is not reported as lost."""

    def __init__(self, started_at: float, *, late: float = 360.0, every: float = 60.0, away: float = 120.0) -> None:
        self._started_at, self._late, self._every, self._away = started_at, late, every, away
        self._outages: list[tuple[float, float, str]] = []
        self._muted: dict[str, tuple[Mapping[str, str], float]] = {}
        self._looked = False

    def missed(self, store: Store, prometheus: Prometheus | None, upstream: Upstream, now: float) -> Alert | None:
        """Return one alert that lists the alerts missed in the period that is due; None if there are none."""
        self._note_outages(store, upstream, now)
        self._muted |= {
            fingerprint: (alert.labels, now)
            for view in upstream.views
            for fingerprint, alert in view.items()
            if alert.muted_by(())
        }
        self._muted = {name: seen for name, seen in self._muted.items() if now - seen[1] < MOST_SECONDS}
        until = now - self._late
        with store.transaction() as tx:
            since = max(float(tx.fact(SWEPT_FACT) or until), now - MOST_SECONDS)
            if tx.fact(SWEPT_FACT) is None:
                tx.save_fact(SWEPT_FACT, repr(until))
        if prometheus is None or until - since < self._every:
            return None
        try:
            series = prometheus.range(FIRING, since - SLACK_SECONDS, until, STEP_SECONDS)
        except PrometheusError as error:
            _log.warning("reconciliation: scanning for missed alerts: %s", error)
            return None
        with store.transaction() as tx:
            incidents = tx.recent_incidents(since - SLACK_SECONDS)
            names = set(tx.facts(OUR_ALERT))
            tx.save_fact(SWEPT_FACT, repr(until))
        ours = [spans for spans in series if is_ours(spans.labels, names) and not self._was_muted(spans.labels)]
        spans = dict(_undelivered(ours, incidents, until))
        return missed(spans, since, until, outage=self._outage(since, until)) if spans else None

    def _note_outages(self, store: Store, upstream: Upstream, now: float) -> None:
        """Note that the service was down since the last scan, or that Alertmanager was."""
        with store.transaction() as tx:
            alive = float(tx.fact(ALIVE_FACT) or now)
            tx.save_fact(ALIVE_FACT, repr(now))
        if now - alive > self._away:
            self._outages.append((alive, now, f"the service was down for {duration(now - alive)}"))
        if any(name.startswith("Alertmanager") for name in upstream.silent):
            self._outages.append((alive, now, "Alertmanager did not answer"))
        self._outages = [outage for outage in self._outages if outage[1] > now - MOST_SECONDS]

    def _was_muted(self, labels: Mapping[str, str]) -> bool:
        """Return whether a time interval of Alertmanager's muted it: people wanted to hear nothing of it."""
        return any(is_subset(without_state(labels), muted) for muted, _at in self._muted.values())

    def _outage(self, since: float, until: float) -> str:
        return next((why for start, end, why in self._outages if start <= until and end >= since - SLACK_SECONDS), "")


def is_ours(labels: Mapping[str, str], names: Collection[str]) -> bool:
    """Return whether an alert belongs to us: its name was delivered before, or it is from our own rules."""
    return labels.get("alertname") in names or labels.get("component") in COMPONENTS


def _undelivered(
    series: Sequence[Series], incidents: Sequence[Incident], until: float
) -> Iterator[tuple[str, tuple[float, float]]]:
    """Yield (line, (start, end)) for each finished firing period that no incident covers."""
    for series_item in series:
        labels = without_state(series_item.labels)
        if is_signal(labels) or labels.get("severity") == "info":
            continue
        for began, ended in _firing_spans(series_item):
            over = ended < until - 2 * STEP_SECONDS
            if over and not any(_covers(incident, labels, began, ended) for incident in incidents):
                where = part_of(labels) or labels.get("run", "")
                subject = f"{labels.get('alertname', 'unnamed alert')}{f' {where}' if where else ''}"
                yield f"{subject} {clock_utc(began)} for {duration(ended - began)}", (began, ended)


def _firing_spans(series: Series) -> Iterator[tuple[float, float]]:
    times = [when for when, _value in series.points]
    start = 0
    for index in range(1, len(times) + 1):
        if index == len(times) or times[index] - times[index - 1] > 2.5 * STEP_SECONDS:
            yield times[start], times[index - 1]
            start = index


def _covers(incident: Incident, labels: dict[str, str], began: float, ended: float) -> bool:
    """Return whether this incident reported the alert around that time."""
    for alert in incident.members:
        if is_subset(labels, alert.labels):
            spans = [(alert.starts_at, alert.ends_at or float("inf")), *incident.episodes]
            if any(start <= ended + SLACK_SECONDS and end >= began - SLACK_SECONDS for start, end in spans):
                return True
    return False


WAITING_FACT = "lost_rounds"
ROUNDS = 3  # of reconciliation that wait for Alertmanager, before the report is posted without it


def is_refill_due(tx: Transaction) -> bool:
    """Return whether Alertmanager still has to be queried for all firing alerts."""
    return tx.fact(REFILL_FACT) is not None


def refilled(tx: Transaction) -> None:
    """Record that all firing alerts were read; a repeated delivery counts as new."""
    tx.forget_deliveries()
    tx.forget_fact(REFILL_FACT)


def due_loss(tx: Transaction, taken: int, now: float) -> Alert | None:
    """Return the alert that reports the loss, once: after the refill, or when Alertmanager was silent for a while."""
    told = tx.fact(LOST_FACT)
    if told is None:
        return None
    rounds = int(tx.fact(WAITING_FACT) or 0) + 1
    silent = is_refill_due(tx)
    if silent and rounds < ROUNDS:
        tx.save_fact(WAITING_FACT, str(rounds))
        return None
    loss = json.loads(told)
    since = float(loss["since"])
    # From there on, Prometheus' record is compared with the store.
    tx.save_fact(SWEPT_FACT, repr(min(since, float(tx.fact(SWEPT_FACT) or since))))
    tx.forget_fact(LOST_FACT)
    tx.forget_fact(WAITING_FACT)
    return state_lost(loss["why"], loss["kept"], since, None if silent else taken, now)
