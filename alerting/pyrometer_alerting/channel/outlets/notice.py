"""A notice: an incident's news for an outlet, built from the same message that Slack shows."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pyrometer_alerting.channel.blocks import Style
from pyrometer_alerting.channel.card import headline
from pyrometer_alerting.channel.evidence import build_evidence, has_evidence
from pyrometer_alerting.channel.messages import WITHOUT_CHART, build, build_pointer, card_lines
from pyrometer_alerting.channel.mrkdwn import texts
from pyrometer_alerting.channel.terminal import render
from pyrometer_alerting.model.culprits import culprits
from pyrometer_alerting.model.harm import urgency
from pyrometer_alerting.model.incident import Alert, Cause, Incident, part_of
from pyrometer_alerting.model.message import Message
from pyrometer_alerting.model.text import plain, rfc3339

OPENED, UPDATED, ACKNOWLEDGED, RESOLVED = "opened", "updated", "acknowledged", "resolved"
TITLE = 150


@dataclass(frozen=True)
class Notice:
    """One event of an incident's life for one outlet.

    Attributes:
        event: opened, updated, acknowledged or resolved.
        key: the same for all events of the incident: with it a pager finds its own alert again.
        delivery: the same for each attempt at this event: with it a receiver can drop duplicates.
        thread: the `delivery` of the first event.
        subject: the title of the first event, without its sign.
        short: whether the outlet has refused the full content.
        picture: the run's chart as PNG.
    """

    event: str
    incident: Incident
    message: Message
    title: str
    key: str
    delivery: str
    thread: str
    subject: str
    into: str = ""
    short: bool = False
    picture: bytes | None = None
    test: bool = False

    @property
    def text(self) -> str:
        """Return card and evidence as plain text, or the title alone after the outlet refused more."""
        return self.title if self.short else render(Message(self.message.text))

    @property
    def links(self) -> list[tuple[str, str]]:
        """The message's links as (name, address)."""
        spans = (span for block in self.message.blocks for piece in texts(block) for span in piece)
        return [(span.text, span.url) for span in spans if span.kind == "link"]

    @property
    def part(self) -> str:
        """The culprit, else where it was seen."""
        return next(iter(culprits(self.incident)), self.incident.run or self.incident.cluster or "unknown")


class Outlet(ABC):
    """A place that takes notices.

    Attributes:
        pages: whether it should not get the end of an incident that it never got.
        takes_pictures: whether it can show a notice's picture.
    """

    pages: ClassVar[bool] = False
    takes_pictures: ClassVar[bool] = False

    @abstractmethod
    def send(self, notice: Notice) -> None:
        """Deliver the notice; the same one may be sent again.

        Raises:
            DeliveryFailure: it may not have worked.
        """

    def __repr__(self) -> str:
        """Return a text without the key or the address, which may be a secret."""
        return f"{type(self).__name__}()"


@dataclass(frozen=True)
class Entry:
    """An outlet of the configuration: its name and kind, and which incidents it gets."""

    name: str
    kind: str
    outlet: Outlet
    severities: frozenset[str] = frozenset({"critical", "warning"})
    match: Mapping[str, frozenset[str]] = field(default_factory=dict)
    labels: frozenset[str] | None = None

    def wants(self, incident: Incident) -> bool:
        """Return whether it gets the incident: by severity, and by the labels of any of its alerts."""
        return urgency(incident) in self.severities and any(
            all(alert.labels.get(name, "") in values for name, values in self.match.items())
            for alert in incident.members
        )


def is_open(incident: Incident) -> bool:
    """Return whether somebody may have to act on it: no longer once it is part of another incident."""
    return incident.firing and not incident.joined_into


def situation(incident: Incident) -> str:
    """Return a key that changes when the receiver must be notified again: not with each new number."""
    diagnosis = incident.diagnosis
    cause = (diagnosis.causes[0].part, diagnosis.causes[0].cause) if diagnosis is not None and diagnosis.causes else ()
    facts: list[Any] = [incident.firing, incident.joined_into, urgency(incident), bool(incident.acknowledged)]
    facts += [incident.episodes[-1:], incident.domain, culprits(incident)[:1], cause]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]


def delivery_id(incident: Incident, delivered: int) -> str:
    """Return the id of the next event: the same for each attempt, different for different content."""
    facts = f"{incident.id}\x1f{delivered}\x1f{situation(incident)}"
    return hashlib.sha256(facts.encode()).hexdigest()[:32]


def message_of(incident: Incident, into: Incident | None, style: Style) -> Message:
    """Return the card as Slack shows it and, below a divider, the evidence of its thread, without the chart."""
    if incident.joined_into:
        return build_pointer(incident, into, style)
    card, lines = build(incident, style, WITHOUT_CHART), card_lines(incident, style)
    if not has_evidence(incident):
        return Message("\n".join(lines), card.blocks)
    evidence = build_evidence(incident, style, WITHOUT_CHART)
    return Message("\n".join([*lines, evidence.text]), [*card.blocks, {"type": "divider"}, *evidence.blocks])


def title_of(incident: Incident, message: Message) -> str:
    """Return the message's first line."""
    if incident.joined_into:
        return plain(render(Message(message.text)), TITLE)
    return plain(headline(incident), TITLE)


def subject_of(title: str) -> str:
    """Return the title without its sign and state, which change: mail programs join what has one subject."""
    return title.partition(" ")[2].removeprefix("Resolved: ") or title


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


def _incident(notice: Notice) -> dict[str, Any]:
    incident = notice.incident
    diagnosis = incident.diagnosis
    return {
        "id": incident.id,
        "state": "merged" if incident.joined_into else "firing" if is_open(incident) else "resolved",
        "merged_into": incident.joined_into,
        "cluster": incident.cluster,
        "run": incident.run,
        "component": incident.component,
        "severity": urgency(incident),
        "alertnames": incident.alertnames(),
        "culprits": culprits(incident),
        "causes": [_cause(cause) for cause in diagnosis.causes] if diagnosis is not None else [],
        "missing_evidence": list(diagnosis.missing) if diagnosis is not None else [],
        "lost_gpu_hours": diagnosis.cost.gpu_hours if diagnosis is not None and diagnosis.cost is not None else None,
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
