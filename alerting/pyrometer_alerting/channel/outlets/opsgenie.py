"""Opsgenie's Alert API: one alert per incident by its alias, updated in place and closed with it.

Fields and limits: https://docs.opsgenie.com/docs/alert-api. All calls may be repeated: a second creation with the alias
of an open alert counts up that alert, and the others set a value. Atlassian ends Opsgenie on 5 April 2027.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from pyrometer_alerting.channel.outlets.http import Endpoint
from pyrometer_alerting.channel.outlets.notice import ACKNOWLEDGED, OPENED, RESOLVED, Notice, Outlet
from pyrometer_alerting.model.harm import urgency
from pyrometer_alerting.model.text import words

URL = "https://api.opsgenie.com"
_PRIORITIES = {"critical": "P1", "warning": "P3", "info": "P5"}
_MESSAGE, _DESCRIPTION, _NOTE, _ENTITY, _DETAIL, _TAG = 130, 15_000, 25_000, 512, 8000, 50
_ALERTS = "/v2/alerts"


@dataclass(frozen=True, repr=False)
class Opsgenie(Outlet):
    """Calls the API with the key of an API integration."""

    endpoint: Endpoint
    key: str
    pages = True

    def send(self, notice: Notice) -> None:
        """Create, update, acknowledge or close the incident's alert."""
        if notice.event == OPENED:
            self._call("POST", _ALERTS, _alert(notice))
        elif notice.event == ACKNOWLEDGED:
            self._act(notice, "acknowledge", f"acknowledged in Slack by {notice.incident.acknowledged}")
        elif notice.event == RESOLVED:
            self._act(notice, "close", notice.text)
        else:
            alert = _alert(notice)
            for field in ("message", "description", "priority"):
                self._call("PUT", _by_alias(notice, field), {field: alert[field]})

    def _act(self, notice: Notice, action: str, note: str) -> None:
        self._call("POST", _by_alias(notice, action), {"source": "Pyrometer", "note": note[:_NOTE]})

    def _call(self, method: str, path: str, body: dict[str, Any]) -> None:
        headers = {"Authorization": f"GenieKey {self.key}"}
        self.endpoint.call(method, json.dumps(body).encode(), headers, path)


def _by_alias(notice: Notice, action: str) -> str:
    return f"{_ALERTS}/{quote(notice.key, safe='')}/{action}?identifierType=alias"


def _alert(notice: Notice) -> dict[str, Any]:
    incident = notice.incident
    details = {"cluster": incident.cluster, "run": incident.run, "component": incident.component}
    details |= dict(notice.links)
    return {
        "message": words(notice.title, _MESSAGE),
        "alias": notice.key,
        "description": notice.text[:_DESCRIPTION],
        "entity": notice.part[:_ENTITY],
        "source": "Pyrometer",
        "priority": _PRIORITIES[urgency(incident)],
        "tags": [tag[:_TAG] for tag in (urgency(incident), incident.component, *incident.alertnames()[:5]) if tag],
        "details": {name: value[:_DETAIL] for name, value in details.items() if value},
    }
