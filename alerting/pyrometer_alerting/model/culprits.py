"""Name the parts that an incident blames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyrometer_alerting.model.alert_names import RUN_SYMPTOMS
from pyrometer_alerting.model.incident import Incident, part_of
from pyrometer_alerting.model.places import Topology, is_within, overlaps, place_named, place_of


def culprits(incident: Incident) -> list[str]:
    """Return the parts to blame: from the diagnosis, the shared domain, the members' own; never `unknown`.

    Where the diagnosis names a cause that belongs to no single part, it blames none. The rank or node that the run's
    own alert names is not counted in addition to the part that the diagnosis found there, nor is what is inside of a
    part that it found, or around it.
    """
    causes = incident.diagnosis.causes if incident.diagnosis else ()
    if causes and causes[0].cause and not causes[0].labels:
        return []
    known = _Known(incident)
    diagnosed = [cause for cause in causes if cause.labels]
    first = [known.located(cause.labels or {}) for cause in diagnosed[:1]]
    named = [
        cause
        for number, cause in enumerate(diagnosed)
        if not number or not any(is_within(one, place_of(cause.labels or {})) for one in first)
    ]
    blamed = [known.located(cause.labels or {}) for cause in diagnosed]
    nodes = {labels.get("node") for labels in blamed} - {None}
    members = [
        part_of(alert.labels)
        for alert in incident.members
        if alert.firing == incident.firing
        and not (alert.name in RUN_SYMPTOMS and alert.labels.get("node") in nodes)
        and not known.overlap(alert.labels, blamed)
    ]
    domain = "" if known.overlap(place_named(incident.domain), blamed) else incident.domain
    return list(dict.fromkeys(part for part in [*(cause.part for cause in named), domain, *members] if part))


def blames(incident: Incident, labels: Mapping[str, str]) -> bool:
    """Return whether the incident names this part, what it is inside of, or what is inside of it."""
    known = _Known(incident)
    causes = incident.diagnosis.causes if incident.diagnosis is not None else ()
    places = [*(cause.labels or {} for cause in causes), place_named(incident.domain)]
    return known.overlap(labels, list(map(known.located, places))) or part_of(labels) in culprits(incident)


class _Known:
    """Where the parts of an incident are, as far as its run's roster says."""

    def __init__(self, incident: Incident) -> None:
        self._cluster = incident.cluster
        self._roster = incident.diagnosis.roster if incident.diagnosis is not None else None

    def located(self, labels: Mapping[str, str]) -> dict[str, str]:
        return Topology().located(labels, self._cluster, self._roster)

    def overlap(self, labels: Mapping[str, str], parts: Sequence[Mapping[str, str]]) -> bool:
        part = self.located(labels)
        return any(overlaps(part, other) for other in parts)
