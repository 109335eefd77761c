"""Open incidents as metrics, so that a board shows the same culprit, cause and cost as the channel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyrometer_alerting.incidents.metrics import INCIDENT, INCIDENT_LOST, PAGE
from pyrometer_alerting.model import text
from pyrometer_alerting.model.culprits import culprits
from pyrometer_alerting.model.incident import SEVERITIES, Incident

# A storm is one incident; more than these are no list that anybody reads, and each is a series.
MOST_INCIDENTS = 50
LONGEST_LABEL = 120

Gauge = dict[tuple[tuple[str, str], ...], float]


def incident_gauges(incidents: Sequence[Incident], external_url: str) -> dict[str, Gauge]:
    """Return pyrometer_incident_* of the incidents that fire, the worst and newest of them, and the page that has them.

    Args:
        incidents: all that fire, newest first; those of severity info are for the digest only and left out.
        external_url: this service's address for browsers, which the links lead to; empty for none.
    """
    posted = [each for each in incidents if each.firing and each.is_posted and not each.joined_into]
    worst = sorted(posted, key=lambda each: -SEVERITIES.index(each.severity))[:MOST_INCIDENTS]
    labels = {each.id: _labels(each, external_url) for each in worst}
    lost = {
        _key(INCIDENT_LOST.labels, labels[each.id]): each.diagnosis.cost.gpu_hours
        for each in worst
        if each.diagnosis is not None and each.diagnosis.cost is not None
    }
    started = {_key(INCIDENT.labels, labels[each.id]): began(each) for each in worst}
    found = {INCIDENT.name: started, INCIDENT_LOST.name: lost}
    page: dict[str, Gauge] = {PAGE.name: {(("url", external_url),): 1.0}} if external_url else {}
    return page | {name: gauge for name, gauge in found.items() if gauge}


def began(incident: Incident) -> float:
    """Return when the trouble began: the onset that the diagnosis found, at the latest the first alert."""
    onset = incident.diagnosis.onset if incident.diagnosis is not None else None
    return incident.started_at if onset is None else min(onset, incident.started_at)


def _labels(incident: Incident, external_url: str) -> Mapping[str, str]:
    causes = incident.diagnosis.causes if incident.diagnosis is not None else ()
    first = causes[0] if causes and causes[0].cause else None
    at = (first.labels or {}) if first is not None else incident.newest().labels
    parts = [first.part] if first is not None else culprits(incident)
    return {
        "cluster": incident.cluster,
        "id": incident.id,
        "alert": incident.alertname,
        "severity": incident.severity,
        "run": incident.run,
        "node": at.get("node", ""),
        "gpu": at.get("gpu", ""),
        "part": parts[0] if parts else "unknown",
        "cause": first.cause if first is not None else "unknown" if incident.wants_diagnosis else "",
        "confidence": first.confidence if first is not None else "",
        "acknowledged": incident.acknowledged,
        "link": f"{external_url}/#{incident.id}" if external_url else "",
    }


def _key(names: Sequence[str], labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    # A link that is cut leads nowhere; its length is that of the configured address.
    return tuple((name, text.clean(labels[name])[: None if name == "link" else LONGEST_LABEL]) for name in names)
