"""Describe a dead run to whoever may start it again, and keep out what happens to its parts after its death."""

from __future__ import annotations

import math
from dataclasses import replace

from pyrometer_alerting.diagnosis.evidence.alerts import DELAYS, USUAL_DELAY
from pyrometer_alerting.diagnosis.look import Look
from pyrometer_alerting.diagnosis.run_matchers import selected
from pyrometer_alerting.model.alert_names import DEATH
from pyrometer_alerting.model.incident import Incident
from pyrometer_alerting.model.text import amount
from pyrometer_kit.prometheus import Prometheus, PrometheusError

LOOK_BACK = "7d"  # attempts of this time count
HOUR = 3600.0


def died_by(incident: Incident) -> float:
    """Return until when a cause of the run's last death began (Unix seconds); infinity for a run that has not died."""
    return max((alert.starts_at for alert in incident.members if alert.name == DEATH), default=math.inf)


def without_later_facts(look: Look, end: float) -> Look:
    """Return a look without what began on the run's parts after its death: that did not kill it."""
    facts = [fact for fact in look.facts if fact.began is None or fact.began - fact.precision <= end]
    return replace(look, facts=tuple(facts))


def is_later(incident: Incident, end: float) -> bool:
    """Return whether all that fires in it began after a run's death: it is news of its own, not the run's."""
    begun = [alert.starts_at - DELAYS.get(alert.name, USUAL_DELAY) for alert in incident.members if alert.firing]
    return min(begun, default=-math.inf) > end


def restart_note(prometheus: Prometheus, incident: Incident, now: float) -> str:
    """Return `first death, attempt 0, last checkpoint 0.7 h before`; empty for a run that has not died."""
    died = [alert for alert in incident.members if alert.name == DEATH and alert.firing]
    if not died:
        return ""
    where = selected(incident.cluster, incident.run, incident.job_id)
    attempt = _attempt(prometheus, f"last_over_time(pyrometer_train_run_info{where}[{LOOK_BACK}])", now)
    checkpoints = f"pyrometer_run_last_checkpoint_timestamp_seconds{where}[{LOOK_BACK}]"
    saved = _newest(prometheus, f"max_over_time({checkpoints})", now)
    at = min(alert.starts_at for alert in died)
    hours = f"{amount(max(at - saved, 0.0) / HOUR)} h before" if saved is not None else "unknown"
    return f"{attempt}, last checkpoint {hours}"


def _attempt(prometheus: Prometheus, query: str, now: float) -> str:
    """Return `first death, attempt 0` where the run's series of a week have one attempt, `attempt 3` where more."""
    try:
        found = {series.labels.get("attempt", "") for series in prometheus.instant(query, now)}
    except PrometheusError:
        found = set()
    numbers = sorted(int(attempt) for attempt in found if attempt.isdigit())
    if not numbers:
        return "attempt unknown"
    return f"first death, attempt {numbers[-1]}" if len(numbers) == 1 else f"attempt {numbers[-1]}, died before"


def _newest(prometheus: Prometheus, query: str, now: float) -> float | None:
    try:
        found = [series.points[-1][1] for series in prometheus.instant(query, now)]
    except PrometheusError:
        return None
    return max(found, default=None)
