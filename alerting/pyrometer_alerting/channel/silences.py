"""Silences for an incident: as narrow as its labels allow, one for each of its alerts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pyrometer_alerting.incidents.alertmanager import ActiveAlert, Matcher
from pyrometer_alerting.model.incident import Alert, Incident, part_of

MAX_SILENCES = 5  # with more kinds of alerts nobody can judge what would be muted
MAX_VALUES = 100  # nodes or ports of a storm, listed one by one: never a pattern that matches more
_IDENTITY = ("cluster", "run", "node", "gpu", "device", "port", "switch", "rack")
_SPECIAL = frozenset(r"\.+*?()|[]{}^$")


@dataclass(frozen=True)
class Preview:
    """A silence that may be created, and what it would mute now."""

    matchers: tuple[Matcher, ...]
    mutes: tuple[ActiveAlert, ...] = ()

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
    return [_matchers(name, [alert for alert in firing if alert.name == name]) for name in names]


def _matchers(name: str, alerts: Sequence[Alert]) -> tuple[Matcher, ...]:
    matchers = [Matcher("alertname", name)]
    for label in _IDENTITY:
        values = sorted({alert.labels.get(label, "") for alert in alerts})
        if "" in values:
            continue
        if len(values) > MAX_VALUES:
            raise SilenceRefusedError(f"it has {len(values)} values of {label}: create the silence in Alertmanager")
        matchers.append(
            Matcher(label, values[0]) if len(values) == 1 else Matcher(label, _any_of(values), is_regex=True)
        )
    if len(matchers) == 1:
        raise SilenceRefusedError("its alerts share no label but their name: create the silence in Alertmanager")
    return tuple(matchers)


def _any_of(values: Iterable[str]) -> str:
    """Return an RE2 pattern of these literal values; Alertmanager anchors it."""
    return "|".join("".join(f"\\{char}" if char in _SPECIAL else char for char in value) for value in values)


def alert_lines(alerts: Iterable[ActiveAlert], most: int) -> list[str]:
    """Return the alerts as lines: name and part."""
    lines = [f"{each.labels.get('alertname', 'unnamed alert')} {part_of(each.labels)}".strip() for each in alerts]
    return [*lines[:most], *([f"and {len(lines) - most} more"] if len(lines) > most else [])]
