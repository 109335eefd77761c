"""Stand-ins for PagerDuty, Opsgenie, a Teams workflow and somebody's webhook, each strict about its published schema.

The schemas beside this file have the names, types, enumerations and required fields of, in this order:
https://github.com/PagerDuty/api-schema (reference/events-v2/openapiv3.json, 5cd58ff2),
https://github.com/opsgenie/opsgenie-oas (definitions/alert.yaml, 2497a78a; limits: docs.opsgenie.com/docs/alert-api),
https://github.com/microsoft/AdaptiveCards (schemas/1.4.0/adaptive-card.json, 1b19a238; the elements that are used).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any
from urllib.parse import unquote

import jsonschema

from pyrometer_simulator.http_server import Request
from pyrometer_simulator.outlets.server import FakeOutlet, RefusedError

ROUTING_KEY = "e93facc04764012d7bfb002500d5d1a6"
GENIE_KEY = "eb243592-faa2-4ba2-a551-1afdf565c889"
Document = Mapping[str, Any]


@cache
def schema(name: str) -> dict[str, Any]:
    """Return a published schema."""
    text = (
        resources.files("pyrometer_simulator.outlets").joinpath("schemas").joinpath(f"{name}.json").read_text("utf-8")
    )
    return dict(json.loads(text))


def objections(document: Any, name: str, definition: str) -> list[str]:  # noqa: ANN401  any JSON
    """Return where a document departs from a definition of a published schema."""
    chosen = {**schema(name), "$ref": f"#/definitions/{definition}"}
    return [f"{error.json_path}: {error.message}" for error in jsonschema.Draft7Validator(chosen).iter_errors(document)]


@dataclass
class PagerAlert:
    """An alert as its readers see it; `log` has every event of it."""

    summary: str
    severity: str
    status: str = "triggered"
    details: Document = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    notified: int = 1


class FakePagerDuty(FakeOutlet):
    """The Events API v2: alerts by dedup_key; a trigger of an open alert goes to its log and notifies nobody."""

    def __init__(self) -> None:
        self.alerts: dict[str, list[PagerAlert]] = {}
        super().__init__()

    def handle(self, request: Request, body: Any) -> tuple[int, Document]:  # noqa: ANN401
        """Process one event of /v2/enqueue."""
        found = objections(body, "pagerduty", "Event")
        if request.path != "/v2/enqueue" or found:
            raise _invalid(found or ["no such path"])
        if body["routing_key"] != ROUTING_KEY:
            raise _invalid(["Invalid routing key"])
        key = body.get("dedup_key") or uuid.uuid4().hex
        self._apply(key, body)
        return 202, {"status": "success", "message": "Event processed", "dedup_key": key}

    def _apply(self, key: str, event: Document) -> None:
        alerts = self.alerts.setdefault(key, [])
        current = alerts[-1] if alerts and alerts[-1].status != "resolved" else None
        action = event["event_action"]
        if action == "trigger":
            payload = event["payload"]
            if current is None:
                current = PagerAlert(payload["summary"], payload["severity"])
                alerts.append(current)
            current.summary, current.details = payload["summary"], payload.get("custom_details", {})
        elif current is not None:
            current.status = {"acknowledge": "acknowledged", "resolve": "resolved"}[action]
        if current is not None:
            current.log.append(action)


def _invalid(errors: list[str]) -> RefusedError:
    return RefusedError(400, {"status": "invalid event", "message": "Event object is invalid", "errors": errors})


@dataclass
class GenieAlert:
    """An alert as its readers see it; `count` is how often it was created while it was open."""

    message: str
    description: str
    priority: str
    status: str = "open"
    acknowledged: bool = False
    count: int = 1


class FakeOpsgenie(FakeOutlet):
    """The Alert API: answers 202 at once; alerts are found by their alias."""

    def __init__(self) -> None:
        self.alerts: dict[str, list[GenieAlert]] = {}
        super().__init__()

    def handle(self, request: Request, body: Any) -> tuple[int, Document]:  # noqa: ANN401
        """Process one request below /v2/alerts."""
        if request.headers.get("Authorization") != f"GenieKey {GENIE_KEY}":
            raise RefusedError(403, {"message": "You are not authorized to process this request"})
        if request.path == "/v2/alerts" and request.method == "POST":
            self._check(body, "CreateAlertPayload")
            self._create(body)
        else:
            self._change(request, body)
        return 202, {"result": "Request will be processed", "took": 0.01, "requestId": str(uuid.uuid4())}

    def _create(self, body: Document) -> None:
        alerts = self.alerts.setdefault(body["alias"], [])
        if alerts and alerts[-1].status == "open":
            alerts[-1].count += 1
        else:
            alerts.append(GenieAlert(body["message"], body.get("description", ""), body.get("priority", "P3")))

    def _change(self, request: Request, body: Document) -> None:
        match = re.fullmatch(r"/v2/alerts/([^/]+)/(\w+)", request.path)
        definitions = {"message": "UpdateAlertMessagePayload", "description": "UpdateAlertDescriptionPayload"}
        definitions |= {"priority": "UpdateAlertPriorityPayload"}
        actions = ("close", "acknowledge")
        wanted = "POST" if match and match[2] in actions else "PUT"
        known = match is not None and match[2] in (*definitions, *actions) and request.method == wanted
        if match is None or not known or request.query.get("identifierType") != "alias":
            raise RefusedError(404, {"message": "Not found"})
        self._check(body, definitions.get(match[2], "AlertActionPayload"))
        alerts = self.alerts.get(unquote(match[1]), [])
        if not alerts or alerts[-1].status != "open":
            return  # accepted all the same: the API is asynchronous
        if match[2] == "close":
            alerts[-1].status = "closed"
        elif match[2] == "acknowledge":
            alerts[-1].acknowledged = True
        else:
            setattr(alerts[-1], match[2], body[match[2]])

    def _check(self, body: Document, definition: str) -> None:
        found = objections(body, "opsgenie", definition)
        if found:
            raise RefusedError(422, {"message": "Request body is not processable.", "errors": {"body": found}})


class FakeTeams(FakeOutlet):
    """A workflow with the trigger *When a Teams webhook request is received*: it posts every card that it gets."""

    PATH = "/workflows/0123/triggers/manual/paths/invoke"

    def __init__(self) -> None:
        self.cards: list[Document] = []
        super().__init__()

    @property
    def hook(self) -> str:
        """The workflow's address, with its signature."""
        return f"{self.url}{self.PATH}?api-version=1&sp=%2Ftriggers%2Fmanual%2Frun&sv=1.0&sig=s3cret-signature"

    def handle(self, request: Request, body: Any) -> tuple[int, Document]:  # noqa: ANN401
        """Post a card."""
        if request.path != self.PATH or request.query.get("sig") != "s3cret-signature":
            raise RefusedError(401, {"error": {"code": "DirectApiAuthorizationRequired"}})
        found = objections(body, "teams", "Message")
        if found or len(request.body) > 28 << 10:
            raise RefusedError(400, {"error": {"code": "InvalidRequestContent", "message": str(found)}})
        self.cards += [attachment["content"] for attachment in body["attachments"]]
        return 202, {}

    def texts(self) -> list[str]:
        """Return the text of each card."""
        return ["\n".join(str(block["text"]) for block in card["body"]) for card in self.cards]


class FakeWebhook(FakeOutlet):
    """A receiver that checks the signature, and leaves out a repetition as the specification asks."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self.documents: list[Document] = []
        self._seen: set[str] = set()
        super().__init__()

    def handle(self, request: Request, body: Any) -> tuple[int, Document]:  # noqa: ANN401
        """Take one document."""
        delivery, at = request.headers.get("webhook-id", ""), request.headers.get("webhook-timestamp", "")
        signed = f"{delivery}.{at}.".encode() + request.body
        expected = "v1," + base64.b64encode(hmac.new(self._secret, signed, hashlib.sha256).digest()).decode()
        if not hmac.compare_digest(expected, request.headers.get("webhook-signature", "")):
            raise RefusedError(401, {"message": "wrong signature"})
        if delivery not in self._seen:
            self._seen.add(delivery)
            self.documents.append(body)
        return 200, {}
