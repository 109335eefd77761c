"""List the alerts of an incident that has several."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from pyrometer_alerting.incidents.lifecycle import worst
from pyrometer_alerting.model import text
from pyrometer_alerting.model.harm import rank
from pyrometer_alerting.model.incident import Alert, Incident, part_of

MAX_MEMBERS = 12


def members_text(incident: Incident) -> str:
    """List the members if there are several: firing ones first, then by severity, up to MAX_MEMBERS."""
    if len(incident.members) < 2 and not incident.truncated:
        return ""
    alerts = _one_per_subject(incident.members)
    first = heapq.nsmallest(
        MAX_MEMBERS, alerts, key=lambda alert: (not alert.firing, -rank(worst([alert])), alert.starts_at)
    )
    named = len(incident.alertnames()) > 1
    marks = {True: "\u2022", False: "\u2713"}
    visible = [f"{marks[alert.firing]} {text.mrkdwn(_member(alert, named=named), 100)}" for alert in first]
    if hidden := len(alerts) - len(first):
        visible.append(f"{text.ELLIPSIS} and {hidden} more")
    if incident.truncated:
        visible.append(f"Alertmanager left out {incident.truncated} more alerts (max_alerts)")
    firing = sum(alert.firing for alert in alerts)
    return text.join_lines([f"*{firing} of {len(alerts)} firing*", *visible], 1800)


def _one_per_subject(members: Sequence[Alert]) -> list[Alert]:
    """Return the members, one per subject: a warning that became critical has not ended."""
    latest: dict[frozenset[tuple[str, str]], Alert] = {}
    for alert in sorted(members, key=lambda alert: (alert.firing, alert.starts_at)):
        latest[frozenset((name, value) for name, value in alert.labels.items() if name != "severity")] = alert
    return list(latest.values())


def _member(alert: Alert, *, named: bool) -> str:
    """Return the part, `named`: with the alert's name, as where the incident has several."""
    part = part_of(alert.labels) or (f"run {alert.labels['run']}" if alert.labels.get("run") else "")
    return f"{part}: {alert.name}" if part and named else part or alert.name
