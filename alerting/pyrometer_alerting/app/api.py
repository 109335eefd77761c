"""The JSON API: incidents, messages that Slack refused, and the audit log."""

from __future__ import annotations

import json
from typing import Any

from pyrometer_alerting.channel.blocks import Style
from pyrometer_alerting.channel.evidence import cause_line
from pyrometer_alerting.channel.messages import card_lines
from pyrometer_alerting.incidents.storage.operation import Operation
from pyrometer_alerting.incidents.storage.store import Transaction
from pyrometer_alerting.model.culprits import culprits
from pyrometer_alerting.model.incident import Incident
from pyrometer_kit.http_message import Response

_JSON = "application/json; charset=utf-8"


def incidents(tx: Transaction, style: Style) -> Response:
    """Answer GET /api/v1/incidents: firing incidents, then resolved ones."""
    pairs = [(incident, tx.outbox.root(incident.id)) for incident in tx.incidents()]
    return _answer({"incidents": [_as_json(incident, root, style) for incident, root in pairs]})


def dead(tx: Transaction) -> Response:
    """Answer GET /api/v1/dead: what Slack refused for good."""
    operations = tx.outbox.dead()
    return _answer(
        {
            "dead": [
                {"op_id": one.op_id, "incident": one.incident_id, "kind": one.kind, "error": one.error}
                | {"channel": one.target, "outlet": one.outlet}
                for one in operations
            ]
        }
    )


def audit(tx: Transaction) -> Response:
    """Answer GET /api/v1/audit: who did what in the channel, newest first."""
    names = ("at", "user", "action", "incident", "detail")
    return _answer({"audit": [dict(zip(names, row, strict=True)) for row in tx.audits()]})


def policy(tx: Transaction) -> Response:
    """Answer GET /api/v1/policy: what was done to nodes, newest first."""
    return _answer({"actions": [vars(action) for action in tx.actions.newest()]})


def _answer(document: dict[str, Any]) -> Response:
    return Response(200, json.dumps(document).encode(), _JSON, {"Cache-Control": "no-store"})


def _as_json(incident: Incident, root: Operation | None, style: Style) -> dict[str, Any]:
    diagnosis = incident.diagnosis
    causes = diagnosis.causes if diagnosis is not None else ()
    return {
        "id": incident.id,
        "alertname": incident.alertname,
        "cluster": incident.cluster,
        "run": incident.run,
        "severity": incident.severity,
        "status": "joined" if incident.joined_into else "firing" if incident.firing else "resolved",
        "joined_into": incident.joined_into or None,
        "domain": incident.domain,
        "note": incident.note,
        "received_at": incident.received_at,
        "started_at": incident.started_at,
        "posted_at": root.posted_at if root is not None else None,
        "resolved_at": incident.resolved_at,
        "times": len(incident.episodes) + 1,
        "culprits": culprits(incident),
        "causes": [
            {
                "part": cause.part,
                "cause": cause.cause,
                "evidence": list(cause.evidence),
                "against": list(cause.against),
                "since": cause.since,
                "score": cause.score,
                "confidence": cause.confidence,
                "labels": dict(cause.labels or {}),
                "text": cause_line(cause),
            }
            for cause in causes
        ],
        "signature": diagnosis.shape.kind if diagnosis is not None and diagnosis.shape is not None else None,
        "gpu_hours_lost": diagnosis.cost.gpu_hours if diagnosis is not None and diagnosis.cost is not None else None,
        "missing_evidence": list(diagnosis.missing) if diagnosis is not None else [],
        "diagnosed_at": diagnosis.at if diagnosis is not None else None,
        "onset": diagnosis.onset if diagnosis is not None else None,
        "alerts": [
            {"fingerprint": alert.fingerprint, "firing": alert.firing, "labels": dict(alert.labels)}
            for alert in incident.members
        ],
        "slack": {"channel": root.channel, "ts": root.ts, "state": root.state} if root is not None else None,
        "text": "\n".join(card_lines(incident, style)),
    }
