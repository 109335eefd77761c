"""A notice as JSON: the body of the webhook, and the details that pagers keep. docs/outlets.md has its schema."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from pyrometer_alerting.channel.outlets.notice import Notice, is_open
from pyrometer_alerting.model.culprits import culprits
from pyrometer_alerting.model.incident import Alert, Cause, Incident, part_of

VERSION = 1
MAX_MEMBERS = 50


def document(notice: Notice) -> dict[str, Any]:
    """Return the whole notice, without anything that differs between attempts."""
    return {
        "version": VERSION,
        "event": notice.event,
        "delivery_id": notice.delivery,
        "test": notice.test,
        "title": notice.title,
        "text": notice.text,
        "links": [{"name": name, "url": url} for name, url in notice.links],
        "incident": _incident(notice),
    }


def rfc3339(unix: float) -> str:
    """Return a time as `2026-11-21T03:12:05Z`."""
    return datetime.fromtimestamp(unix, tz=timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _incident(notice: Notice) -> dict[str, Any]:
    incident = notice.incident
    found = incident.diagnosis
    return {
        "id": incident.id,
        "state": "merged" if incident.joined_into else "firing" if is_open(incident) else "resolved",
        "merged_into": incident.joined_into,
        "cluster": incident.cluster,
        "run": incident.run,
        "component": incident.component,
        "severity": incident.severity,
        "alertnames": incident.alertnames(),
        "culprits": culprits(incident),
        "causes": [_cause(cause) for cause in found.causes] if found is not None else [],
        "missing_evidence": list(found.missing) if found is not None else [],
        "lost_gpu_hours": found.cost.gpu_hours if found is not None and found.cost is not None else None,
        "started_at": rfc3339(incident.started_at),
        "resolved_at": None if incident.resolved_at is None else rfc3339(incident.resolved_at),
        "acknowledged_by": incident.acknowledged,
        "alerts": [] if notice.short else _alerts(incident),
        "alerts_total": len(incident.members) + incident.truncated,
    }


def _cause(cause: Cause) -> dict[str, Any]:
    return {
        "part": cause.part,
        "cause": cause.cause,
        "confidence": cause.confidence,
        "evidence": list(cause.evidence),
        "against": list(cause.against),
        "labels": dict(cause.labels or {}),
    }


def _alerts(incident: Incident) -> list[dict[str, Any]]:
    first = sorted(incident.members, key=lambda alert: (not alert.firing, alert.starts_at))[:MAX_MEMBERS]
    return [_alert(alert) for alert in first]


def _alert(alert: Alert) -> dict[str, Any]:
    return {
        "alertname": alert.name,
        "part": part_of(alert.labels),
        "firing": alert.firing,
        "starts_at": rfc3339(alert.starts_at),
        "labels": dict(alert.labels),
        "annotations": dict(alert.annotations),
    }
