"""A notice: an incident's news for an outlet, built from the same message that Slack shows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from pyrometer_alerting.channel.messages import WITHOUT_CHART, Style, build, build_pointer, headline
from pyrometer_alerting.channel.mrkdwn import texts
from pyrometer_alerting.channel.terminal import render
from pyrometer_alerting.model.culprits import culprits
from pyrometer_alerting.model.incident import Incident
from pyrometer_alerting.model.message import Message
from pyrometer_alerting.model.text import plain

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
        """All facts of the message as plain text; the title alone where the outlet refused more."""
        return self.title if self.short else render(Message(self.message.text))

    @property
    def links(self) -> list[tuple[str, str]]:
        """The message's links as (name, address)."""
        found = (span for block in self.message.blocks for piece in texts(block) for span in piece)
        return [(span.text, span.url) for span in found if span.kind == "link"]

    @property
    def part(self) -> str:
        """The culprit, else where it was seen."""
        return next(iter(culprits(self.incident)), self.incident.run or self.incident.cluster or "unknown")


class Outlet(Protocol):
    """A place that takes notices."""

    @property
    def pages(self) -> bool:
        """True if it should not get the end of an incident that it never got."""
        ...

    @property
    def takes_pictures(self) -> bool:
        """True if it can show a notice's picture."""
        ...

    def send(self, notice: Notice) -> None:
        """Deliver the notice; the same one may be sent again.

        Raises:
            DeliveryFailure: it may not have worked.
        """


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
        return incident.severity in self.severities and any(
            all(alert.labels.get(name, "") in values for name, values in self.match.items())
            for alert in incident.members
        )


def is_open(incident: Incident) -> bool:
    """Return whether somebody may have to act on it: no longer once it is part of another incident."""
    return incident.firing and not incident.joined_into


def situation(incident: Incident) -> str:
    """Return a key that changes when the receiver must be notified again: not with each new number."""
    found = incident.diagnosis
    cause = (found.causes[0].part, found.causes[0].cause) if found is not None and found.causes else ()
    facts: list[Any] = [incident.firing, incident.joined_into, incident.severity, bool(incident.acknowledged)]
    facts += [incident.episodes[-1:], incident.domain, culprits(incident)[:1], cause]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]


def delivery_id(incident: Incident, delivered: int) -> str:
    """Return the id of the next event: the same for each attempt, different for different content."""
    facts = f"{incident.id}\x1f{delivered}\x1f{situation(incident)}"
    return hashlib.sha256(facts.encode()).hexdigest()[:32]


def message_of(incident: Incident, into: Incident | None, style: Style) -> Message:
    """Return the message as Slack shows it, without the chart."""
    return build_pointer(incident, into, style) if incident.joined_into else build(incident, style, WITHOUT_CHART)


def title_of(incident: Incident, message: Message) -> str:
    """Return the message's first line."""
    if incident.joined_into:
        return plain(render(Message(message.text)), TITLE)
    return plain(headline(incident), TITLE)


def subject_of(title: str) -> str:
    """Return the title without its sign and state, which change: mail programs join what has one subject."""
    return title.partition(" ")[2].removeprefix("Resolved: ") or title
