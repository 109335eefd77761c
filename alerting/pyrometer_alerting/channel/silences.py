"""Silences for an incident: as narrow as its labels allow, one for each of its alerts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyrometer_alerting.channel import payloads
from pyrometer_alerting.incidents.alertmanager import ActiveAlert, Matcher
from pyrometer_alerting.model import text
from pyrometer_alerting.model.incident import Alert, Incident, part_of
from pyrometer_alerting.model.places import is_within, place_named
from pyrometer_alerting.model.routing import HIDDEN
from pyrometer_kit.promql import any_of

MAX_SILENCES = 5  # with more kinds of alerts nobody can judge what would be muted
MAX_VALUES = 100  # nodes or ports of a storm, listed one by one: never a pattern that matches more
_IDENTITY = ("cluster", "run", "job_id", "node", "gpu", "device", "port", "switch", "rack")


@dataclass(frozen=True)
class Preview:
    """A silence that may be created, and what it would mute now."""

    matchers: tuple[Matcher, ...]
    mutes: tuple[ActiveAlert, ...] = ()

    def redacted(self, shows: Callable[[str], bool]) -> Preview:
        """Return it with the values hidden of the labels that its channel does not show."""
        matchers = [each if shows(each.name) else Matcher(each.name, HIDDEN) for each in self.matchers]
        mutes = [
            replace(each, labels={name: value for name, value in each.labels.items() if shows(name)})
            for each in self.mutes
        ]
        return Preview(tuple(matchers), tuple(mutes))

    def matchers_text(self) -> str:
        """Return the matchers as `alertname="GpuLost", node="gpu-042"`."""
        return ", ".join(map(str, self.matchers))


class SilenceRefusedError(Exception):
    """The incident cannot be silenced from here; the message is one line with the reason and the way out."""


def silences_for(incident: Incident) -> list[tuple[Matcher, ...]]:
    """Return the matchers of each silence.

    Raises:
        SilenceRefusedError: nothing fires, or a silence would be too wide.
    """
    firing = [alert for alert in incident.members if alert.firing]
    if not firing:
        raise SilenceRefusedError("none of its alerts is firing any more")
    names = list(dict.fromkeys(alert.name for alert in firing))
    if len(names) > MAX_SILENCES:
        raise SilenceRefusedError(f"it has {len(names)} different alerts: create the silence in Alertmanager")
    place = place_named(incident.domain)
    return [_matchers(name, [alert for alert in firing if alert.name == name], place) for name in names]


def _matchers(name: str, alerts: Sequence[Alert], place: Mapping[str, str]) -> tuple[Matcher, ...]:
    """Return the matchers of one name: of the incident's own place where all are inside of it, else of each part."""
    matchers = [Matcher("alertname", name)]
    inside = bool(place) and all(is_within(alert.labels, place) for alert in alerts)
    for label in ("cluster", "run", "job_id", *place) if inside else _IDENTITY:
        values = sorted({alert.labels.get(label, "") for alert in alerts})
        if "" in values:
            continue
        if len(values) > MAX_VALUES:
            raise SilenceRefusedError(f"it has {len(values)} values of {label}: create the silence in Alertmanager")
        matchers.append(
            Matcher(label, values[0]) if len(values) == 1 else Matcher(label, any_of(values), is_regex=True)
        )
    if len(matchers) == 1:
        raise SilenceRefusedError("its alerts share no label but their name: create the silence in Alertmanager")
    return tuple(matchers)


def alert_lines(alerts: Iterable[ActiveAlert], most: int) -> list[str]:
    """Return the alerts as lines: name and part."""
    lines = [f"{each.labels.get('alertname', 'unnamed alert')} {part_of(each.labels)}".strip() for each in alerts]
    return [*lines[:most], *([f"and {len(lines) - most} more"] if len(lines) > most else [])]


SILENCE_CALLBACK = "pyrometer_silence"
_REASON = "reason"


def silence_view(incident: Incident, hours: int, channel: str, previews: Sequence[Preview]) -> dict[str, Any]:
    """Build the modal: the matchers, what they mute now, and a field for the reason."""
    lines = []
    for preview in previews:
        lines.append(f"*{text.mrkdwn(preview.matchers_text(), 600)}*")
        mutes = alert_lines(preview.mutes, 10)
        lines += [f"\u2022 {text.mrkdwn(each, 150)}" for each in mutes] or ["\u2022 no alert that is firing now"]
    total = sum(len(preview.mutes) for preview in previews)
    alerts = f"{total} alert{'s' if total != 1 else ''}"
    head = f"For {hours} h, {alerts} firing now, and all others with these labels, will be silenced:"
    metadata = {"incident": incident.id, "hours": hours, "channel": channel}
    return {
        "type": "modal",
        "callback_id": SILENCE_CALLBACK,
        "title": {"type": "plain_text", "text": f"Silence for {hours} h"},
        "submit": {"type": "plain_text", "text": "Silence"},
        "close": {"type": "plain_text", "text": "Cancel"},
        "private_metadata": json.dumps(metadata),
        "blocks": [
            {
                "type": "section",
                "text": {"type": "mrkdwn", "text": text.join_lines([head, *lines], 2900), "verbatim": True},
            },
            {
                "type": "input",
                "block_id": _REASON,
                "optional": True,
                "label": {"type": "plain_text", "text": "Why"},
                "element": {"type": "plain_text_input", "action_id": _REASON, "max_length": 200},
            },
        ],
    }


def silence_reason(view: Mapping[str, Any]) -> str:
    """Return the reason that was written into the modal, in one line."""
    return text.plain(payloads.written(view, _REASON), 200)
