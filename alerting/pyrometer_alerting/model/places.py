"""Compare places by containment: a GPU, port or rank is inside its node, a node inside its rack, a port at its switch.

A place is the labels that identify a part, as `part_of` names it: {"node": "gpu-042", "gpu": "3"}, {"rack": "r07"}.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pyrometer_alerting.model.fact import DOMAINS, Roster
from pyrometer_alerting.model.incident import NO_SINGLE_PART, Incident, part_of

Labels = Mapping[str, str]
WIDE = ("switch", "rail", *DOMAINS)


@dataclass(frozen=True)
class Topology:
    """Knows where parts are wired.

    Attributes:
        racks: the rack by (cluster, node).
        ports: switch and rail by (cluster, node, device, port).
    """

    racks: Mapping[tuple[str, str], str] = field(default_factory=dict)
    ports: Mapping[tuple[str, str, str, str], tuple[str, str]] = field(default_factory=dict)

    def located(self, labels: Labels, cluster: str, roster: Roster | None = None) -> dict[str, str]:
        """Return the labels with the rack, switch and rail that the part is at; a run's roster may know more."""
        node, device, port = (labels.get(name, "") for name in ("node", "device", "port"))
        switch, rail = self.ports.get((cluster, node, device, port), ("", ""))
        known = {"rack": self.racks.get((cluster, node), ""), "switch": switch, "rail": rail}
        if roster is not None:
            known |= {**roster.places.get(node, {}), **(roster.ports.get(part_of(labels), {}) if device else {})}
        return {name: value for name, value in {**known, **labels}.items() if value}


def place_of(labels: Labels) -> dict[str, str]:
    """Return the place that these labels identify; empty if they identify none."""
    names: tuple[str, ...]
    if labels.get("node"):
        narrow = ("gpu",) if labels.get("gpu") else ("device", "port") if labels.get("device") else ("rank",)
        names = ("node", *narrow)
    else:
        names = next(((name,) for name in WIDE if labels.get(name)), ())
    return {name: labels[name] for name in names if labels.get(name)}


def place_named(part: str) -> dict[str, str]:
    """Return the place of an incident's domain: `rack r07`, `switch leaf-12`, else a node; empty for none."""
    kind, _, name = part.partition(" ")
    if kind.replace("_", " ") in WIDE and name:
        return {kind: name}
    return {"node": part} if part and part != NO_SINGLE_PART else {}


def is_within(located: Labels, place: Labels) -> bool:
    """Return whether a part, with all that is known of where it is, is the place or inside of it."""
    return bool(place) and place.items() <= located.items()


def overlaps(one: Labels, other: Labels) -> bool:
    """Return whether one of two located parts is inside the other, or both are the same."""
    return is_within(one, place_of(other)) or is_within(other, place_of(one))


def touches(incident: Incident, parts: Iterable[Labels], topology: Topology, roster: Roster | None = None) -> bool:
    """Return whether any of these located parts contains, or is inside of, what fires in the incident."""
    parts = list(parts)
    domain = place_named(incident.domain)
    if any(is_within(part, domain) for part in parts):
        return True
    firing = (topology.located(alert.labels, incident.cluster, roster) for alert in incident.members if alert.firing)
    return any(overlaps(labels, part) for labels in firing for part in parts)
