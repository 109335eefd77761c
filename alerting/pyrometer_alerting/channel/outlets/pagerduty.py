"""PagerDuty's Events API v2: one alert per incident by its dedup_key, updated, acknowledged and resolved with it.

Fields and codes: https://developer.pagerduty.com/docs/events-api-v2/trigger-events/. Every event may be repeated: with
the same dedup_key it goes to the log of the same alert and notifies nobody again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pyrometer_alerting.channel.outlets.http import Endpoint
from pyrometer_alerting.channel.outlets.notice import ACKNOWLEDGED, OPENED, RESOLVED, UPDATED, Notice, Outlet, document
from pyrometer_alerting.model.harm import urgency
from pyrometer_alerting.model.text import plain, rfc3339

URL = "https://events.pagerduty.com/v2/enqueue"
_ACTIONS = {OPENED: "trigger", UPDATED: "trigger", ACKNOWLEDGED: "acknowledge", RESOLVED: "resolve"}
_SUMMARY, _FIELD = 1024, 255  # characters, of the API's reference


@dataclass(frozen=True, repr=False)
class PagerDuty(Outlet):
    """Sends events with the integration key of a service."""

    endpoint: Endpoint
    key: str
    pages = True

    def send(self, notice: Notice) -> None:
        """Trigger, acknowledge or resolve the incident's alert."""
        action = _ACTIONS[notice.event]
        event: dict[str, Any] = {"routing_key": self.key, "event_action": action, "dedup_key": notice.key[:_FIELD]}
        if action == "trigger":
            event |= {
                "client": "Pyrometer",
                "payload": _payload(notice),
                "links": [{"href": url, "text": name} for name, url in notice.links],
            }
        self.endpoint.call("POST", json.dumps(event).encode(), {})


def _payload(notice: Notice) -> dict[str, Any]:
    incident = notice.incident
    payload = {
        "summary": plain(notice.title, _SUMMARY),
        "source": plain(notice.part, _FIELD),
        "severity": urgency(incident),  # ours are three of PagerDuty's four
        "timestamp": rfc3339(incident.started_at),
        "component": incident.component,
        "group": incident.cluster,
        "class": incident.alertname,
        "custom_details": _details(notice),
    }
    return {name: value for name, value in payload.items() if value}


def _details(notice: Notice) -> dict[str, Any]:
    whole = document(notice)
    incident = whole["incident"]
    if notice.short:
        return {"text": notice.text}
    return {"text": notice.text, "culprits": incident["culprits"], "causes": incident["causes"], "run": incident["run"]}
