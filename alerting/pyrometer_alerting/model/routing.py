"""The `routing` part of the configuration file: who is told about what, where and when.

routing:
  routes:                       # the first match wins; else --slack.channel
    - match: {component: nic}
      channel: "#fabric"
    - match: {cluster: [prod-a, prod-b], severity: critical}
      channel: "#oncall"
  channels:
    "#oncall":
      mentions: {critical: [S0123ABCD, here]}
      quiet-hours: {from: "22:00", to: "07:00", timezone: Europe/Berlin, severities: [warning]}
      labels: [cluster, node, gpu, device, port]    # values of all other labels are hidden there
    "#prod-a":
      digest: [prod-a]          # clusters: their digest, beside that of all clusters on --slack.channel
  owners:                       # who is mentioned beside these, by an alert's label or by the user of the run's job
    label: team
    ids: {vision: S0VISION1, ada: U0ADA1234}
  reminder: {after: 15m, mentions: [S0LEADS12]}   # once, unless somebody has acknowledged; without mentions the same
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, time, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pyrometer_alerting.model.harm import NAMELESS, urgency
from pyrometer_alerting.model.incident import SEVERITIES, Alert, Cause, Diagnosis, Incident
from pyrometer_alerting.model.message import Message
from pyrometer_kit.errors import UsageError
from pyrometer_kit.yamlfile import Node, read

HIDDEN = "[hidden]"
_ALWAYS = frozenset({"alertname", "severity", "component"})
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_MENTIONS = ((re.compile(r"[UW][A-Z0-9]{5,}"), "<@{}>"), (re.compile(r"S[A-Z0-9]{5,}"), "<!subteam^{}>"))


@dataclass(frozen=True)
class QuietHours:
    """From `start` to `end` (on the next day if earlier), starting on these days, in this period zone."""

    start: time
    end: time
    zone: ZoneInfo
    days: frozenset[int] = frozenset(range(7))
    severities: frozenset[str] = frozenset({"warning"})

    def until(self, now: float) -> float:
        """Return when the quiet hours end, in Unix seconds; `now` if they are not in effect."""
        local = datetime.fromtimestamp(now, self.zone)
        for day in (local.date(), local.date() - timedelta(days=1)):
            begins = datetime.combine(day, self.start, self.zone)
            last = day if self.end > self.start else day + timedelta(days=1)
            ends = datetime.combine(last, self.end, self.zone)
            if day.weekday() in self.days and begins <= local < ends:
                return ends.timestamp()
        return now


@dataclass(frozen=True)
class Rules:
    """Hold the rules of one channel.

    Attributes:
        labels: the labels that its messages show; None shows all.
        digest: the clusters of its digests; none is no digest.
    """

    labels: frozenset[str] | None = None
    mentions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    quiet: QuietHours | None = None
    digest: tuple[str, ...] = ()

    def shows(self, label: str) -> bool:
        """Return whether its messages and dialogs may show the values of this label."""
        return self.labels is None or label in self.labels or label in _ALWAYS


@dataclass(frozen=True)
class Route:
    """A route to a channel: each of these labels must have one of its values."""

    match: Mapping[str, frozenset[str]]
    channel: str


@dataclass(frozen=True)
class Owners:
    """Whom an incident concerns: a mention by the value of a label of its alerts, or by the user of its run's job."""

    label: str = ""
    mentions: Mapping[str, str] = field(default_factory=dict)

    def of(self, incident: Incident) -> list[str]:
        """Return the mentions of an incident's owners."""
        names = [alert.labels.get(self.label, "") for alert in incident.members] if self.label else []
        names.append(incident.diagnosis.user if incident.diagnosis is not None else "")
        return list(dict.fromkeys(self.mentions[name] for name in names if name in self.mentions))


@dataclass(frozen=True)
class Reminder:
    """After how many seconds without an acknowledgement to remind, 0 for never, and whom; without names the same."""

    after: float = 0.0
    mentions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Routing:
    """Channels by label, and each channel's rules; `default` is the service's own channel."""

    default: str = ""
    routes: tuple[Route, ...] = ()
    channels: Mapping[str, Rules] = field(default_factory=dict)
    owners: Owners = field(default_factory=Owners)
    reminder: Reminder = field(default_factory=Reminder)

    def channel(self, alert: Alert) -> str:
        """Return the channel of an incident that starts with this alert; empty for the service's own channel."""
        for route in self.routes:
            if all(alert.labels.get(name, "") in values for name, values in route.match.items()):
                return "" if route.channel == self.default else route.channel
        return ""

    def rules(self, channel: str) -> Rules:
        """Return the rules of a channel."""
        return self.channels.get(channel or self.default, Rules())

    def digests(self) -> list[tuple[str, tuple[str, ...]]]:
        """Return the channels of digests, empty for the service's own, and the clusters of each; none means all."""
        others = [
            (name, rules.digest) for name, rules in self.channels.items() if rules.digest and name != self.default
        ]
        return [("", self.rules("").digest), *others]

    def not_before(self, incident: Incident, now: float) -> float:
        """Return when the incident may first be posted: at once, or at the end of the quiet hours."""
        quiet = self.rules(incident.channel).quiet
        return quiet.until(now) if quiet is not None and urgency(incident) in quiet.severities else now

    def redacted(self, incident: Incident) -> Incident:
        """Return the incident with the labels hidden that its channel must not show."""
        allowed = self.rules(incident.channel).labels
        return incident if allowed is None else _redacted(incident, allowed | _ALWAYS)

    def with_mentions(self, message: Message, incident: Incident, instead: tuple[str, ...] = ()) -> Message:
        """Add the mentions of its severity and of its owners, or those `instead`, while somebody still has to act."""
        owners = self.owners.of(incident) if urgency(incident) == "critical" else []
        mentions = instead or (*self.rules(incident.channel).mentions.get(urgency(incident), ()), *owners)
        if not mentions or not incident.firing or incident.acknowledged:
            return message
        call = " ".join(mentions)
        block = {"type": "context", "elements": [{"type": "mrkdwn", "text": call, "verbatim": True}]}
        return Message(f"{call} {message.text}", [*message.blocks, block] if message.blocks else [])


def load(path: Path | None, default: str) -> Routing:
    """Read the routing from the configuration file.

    Raises:
        UsageError: the file is wrong; the message names file and line.
    """
    root = read(path).get("routing") if path is not None else None
    if root is None:
        return Routing(default)
    parts = root.fields(("routes", "channels", "owners", "reminder"))
    channels = parts["channels"].fields() if "channels" in parts else {}
    rules = {_channel(name, node): _rules(node) for name, node in channels.items()}
    routes = tuple(_route(node) for node in parts["routes"].items()) if "routes" in parts else ()
    used = {default, *(route.channel for route in routes)}
    for name, node in channels.items():
        if name not in used and not rules[name].digest:
            raise UsageError(f"{node.place}: no route leads to {name}, it is not --slack.channel and gets no digest")
    owners = _owners(parts["owners"]) if "owners" in parts else Owners()
    reminder = _reminder(parts["reminder"]) if "reminder" in parts else Reminder()
    return Routing(default, routes, rules, owners, reminder)


def _owners(node: Node) -> Owners:
    fields = node.fields(("label", "ids"))
    if "ids" not in fields:
        raise UsageError(f"{node.place}: owners need ids: whom to mention for which name")
    label = fields["label"].text() if "label" in fields else ""
    return Owners(label, {name: _mention(item) for name, item in fields["ids"].fields().items()})


def _reminder(node: Node) -> Reminder:
    fields = node.fields(("after", "mentions"))
    if "after" not in fields:
        raise UsageError(f"{node.place}: a reminder needs after: 15m")
    match = re.fullmatch(r"(\d+)(s|m|h)", fields["after"].text())
    if match is None:
        raise UsageError(f"{fields['after'].place}: {fields['after'].text()}: expected a time such as 15m or 1h")
    seconds = int(match[1]) * {"s": 1.0, "m": 60.0, "h": 3600.0}[match[2]]
    mentions = fields["mentions"].items() if "mentions" in fields else []
    return Reminder(seconds, tuple(_mention(item) for item in mentions))


def load_users(path: Path | None) -> frozenset[str]:
    """Read who may press buttons: `slack-users` of the configuration file, user ids or "*" for everyone.

    Raises:
        UsageError: an entry is neither; the message names file and line.
    """
    root = read(path).get("slack-users") if path is not None else None
    if root is None:
        return frozenset()
    for item in root.items():
        if item.text() != "*" and not _MENTIONS[0][0].fullmatch(item.text()):
            raise UsageError(f'{item.place}: {item.text()}: expected a user\'s id (U...), or "*" for everyone')
    return frozenset(item.text() for item in root.items())


def _route(node: Node) -> Route:
    fields = node.fields(("match", "channel"))
    for needed in ("match", "channel"):
        if needed not in fields:
            raise UsageError(f"{node.place}: a route needs {needed}")
    match = {name: _values(values) for name, values in fields["match"].fields().items()}
    if not match:
        raise UsageError(f"{fields['match'].place}: match needs at least one label")
    return Route(match, _channel(fields["channel"].text(), fields["channel"]))


def _values(node: Node) -> frozenset[str]:
    values = [item.text() for item in node.items()] if isinstance(node.value, list) else [node.text()]
    return frozenset(values)


def _channel(name: str, node: Node) -> str:
    if not re.fullmatch(r"#[^\s#<>&]{1,80}|[CG][A-Z0-9]{5,}", name):
        raise UsageError(f"{node.place}: {name}: expected a channel as #name or by its id")
    return name


def _rules(node: Node) -> Rules:
    fields = node.fields(("labels", "mentions", "quiet-hours", "digest"))
    labels = frozenset(item.text() for item in fields["labels"].items()) if "labels" in fields else None
    mentions = {}
    for severity, names in (fields["mentions"].fields(SEVERITIES) if "mentions" in fields else {}).items():
        mentions[severity] = tuple(_mention(item) for item in names.items())
    quiet = _quiet(fields["quiet-hours"]) if "quiet-hours" in fields else None
    digest = tuple(item.text() for item in fields["digest"].items()) if "digest" in fields else ()
    if digest and labels is not None:
        raise UsageError(
            f"{fields['digest'].place}: a digest names nodes and runs: a channel that hides labels gets none"
        )
    return Rules(labels, mentions, quiet, digest)


def _mention(node: Node) -> str:
    name = node.text().removeprefix("@")
    if name in ("here", "channel"):
        return f"<!{name}>"
    for pattern, markup in _MENTIONS:
        if pattern.fullmatch(name):
            return markup.format(name)
    raise UsageError(f"{node.place}: {name}: expected here, channel, or the id of a user (U...) or a group (S...)")


def _quiet(node: Node) -> QuietHours:
    fields = node.fields(("from", "to", "timezone", "days", "severities"))
    for needed in ("from", "to", "timezone"):
        if needed not in fields:
            raise UsageError(f"{node.place}: quiet-hours need {needed}")
    start, end = _time(fields["from"]), _time(fields["to"])
    if start == end:
        raise UsageError(f"{node.place}: quiet-hours must not end at the time they start")
    days = _choices(fields["days"], _DAYS) if "days" in fields else _DAYS
    severities = _choices(fields["severities"], SEVERITIES) if "severities" in fields else ["warning"]
    return QuietHours(start, end, _zone(fields["timezone"]), frozenset(map(_DAYS.index, days)), frozenset(severities))


def _time(node: Node) -> time:
    try:
        return datetime.strptime(node.text(), "%H:%M").time()  # noqa: DTZ007 - a time of day has no zone
    except ValueError:
        raise UsageError(f'{node.place}: expected a time of day, such as "22:00"') from None


def _zone(node: Node) -> ZoneInfo:
    try:
        return ZoneInfo(node.text())
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise UsageError(f"{node.place}: {node.text()}: unknown time zone (Europe/Berlin, UTC)") from None


def _choices(node: Node, known: Iterable[str]) -> list[str]:
    known = list(known)
    for item in node.items():
        if item.text() not in known:
            raise UsageError(f"{item.place}: {item.text()} must be one of {', '.join(known)}")
    return [item.text() for item in node.items()]


def _redacted(incident: Incident, allowed: frozenset[str]) -> Incident:
    """Hide the values of all other labels, also inside texts; values of one or two characters are not sought there."""
    diagnosis = incident.diagnosis
    causes = () if diagnosis is None else (*diagnosis.causes, *diagnosis.seen)
    sets: list[Mapping[str, str]] = [{**alert.labels, "user": alert.user} for alert in incident.members]
    sets += [cause.labels or {} for cause in causes]
    if diagnosis is not None:
        silent = diagnosis.roster.silent if diagnosis.roster is not None else {}
        sets += [*(fact.labels for fact in diagnosis.facts), *({"node": node} for node in silent)]
    secret = {value for labels in sets for name, value in labels.items() if name not in allowed and len(value) > 2}
    redactor = _Redactor(secret, allowed)
    return replace(
        incident,
        cluster=incident.cluster if "cluster" in allowed else HIDDEN,
        run=incident.run if "run" in allowed or not incident.run else HIDDEN,
        parted_run=incident.parted_run if "run" in allowed or not incident.parted_run else HIDDEN,
        domain=redactor.text(incident.domain),
        use=incident.use if incident.use in ("", *NAMELESS) else "a run",
        members=tuple(redactor.alert(alert) for alert in incident.members),
        diagnosis=None if incident.diagnosis is None else redactor.diagnosis(incident.diagnosis),
    )


class _Redactor:
    def __init__(self, secret: set[str], allowed: frozenset[str]) -> None:
        longest_first = sorted(map(re.escape, secret), key=len, reverse=True)
        self._pattern = re.compile("|".join(longest_first)) if longest_first else None
        self._allowed = allowed

    def text(self, value: str) -> str:
        return self._pattern.sub(HIDDEN, value) if self._pattern is not None else value

    def labels(self, labels: Mapping[str, str]) -> dict[str, str]:
        return {name: value for name, value in labels.items() if name in self._allowed}

    def alert(self, alert: Alert) -> Alert:
        told = alert.annotations.items()
        annotations = {name: self.text(value) for name, value in told if name != "user" or name in self._allowed}
        return replace(alert, labels=self.labels(alert.labels), annotations=annotations)

    def diagnosis(self, diagnosis: Diagnosis) -> Diagnosis:
        causes = tuple(self.cause(cause) for cause in diagnosis.causes)
        seen = tuple(self.cause(cause) for cause in diagnosis.seen)
        missing, revision = tuple(map(self.text, diagnosis.missing)), self.text(diagnosis.revision)
        # Facts are for `explain` on the host: their queries name everything.
        return replace(diagnosis, causes=causes, seen=seen, missing=missing, revision=revision, facts=(), roster=None)

    def cause(self, cause: Cause) -> Cause:
        return replace(
            cause,
            part=self.text(cause.part),
            cause=self.text(cause.cause),
            brief=self.text(cause.brief),
            evidence=tuple(map(self.text, cause.evidence)),
            against=tuple(map(self.text, cause.against)),
            labels=self.labels(cause.labels) if cause.labels else cause.labels,
        )
