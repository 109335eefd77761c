"""Name the parts that an incident blames."""

from __future__ import annotations

from pyrometer_alerting.model.alert_names import RUN_SYMPTOMS
from pyrometer_alerting.model.incident import Cause, Incident, part_of


def culprits(incident: Incident) -> list[str]:
    """Return the parts to blame: from the diagnosis, the shared domain, the members' own; never `unknown`.

    Where the diagnosis names a cause that belongs to no single part, it blames none. The rank or node that the run's
    own alert names is not counted in addition to the part that the diagnosis found there, nor is the node of the
    first cause's GPU or port.
    """
    causes = incident.diagnosis.causes if incident.diagnosis else ()
    blamed = {(cause.labels or {}).get("node") for cause in causes} - {None}
    members = [
        part_of(alert.labels)
        for alert in incident.members
        if alert.firing == incident.firing and not (alert.name in RUN_SYMPTOMS and alert.labels.get("node") in blamed)
    ]
    if causes and causes[0].cause and not causes[0].labels:
        return []
    diagnosed = [
        cause.part for cause in causes if cause.labels and not any(_is_around(cause, one) for one in causes[:1])
    ]
    return list(dict.fromkeys(part for part in [*diagnosed, incident.domain, *members] if part))


def _is_around(cause: Cause, first: Cause) -> bool:
    """Return whether a cause concerns the whole node of the first one's GPU or port."""
    outer, inner = ({name: value for name, value in (one.labels or {}).items() if value} for one in (cause, first))
    outer.pop("cluster", "")
    return bool(outer) and outer.keys() == {"node"} and outer.items() < inner.items()
