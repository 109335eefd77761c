"""Facts from alerts: those on the run's parts, and those on a switch, a rail or a rack that the run is on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from pyrometer_alerting.diagnosis.look import Kind, Look, Query, Questions, Subject
from pyrometer_alerting.incidents.topology import Port, scope_of
from pyrometer_alerting.model.alert_names import NAMED_CAUSES, RUN_SYMPTOMS, is_cause
from pyrometer_alerting.model.fact import Fact, Roster
from pyrometer_alerting.model.incident import Alert, Incident, part_of
from pyrometer_alerting.model.text import clock_utc
from pyrometer_kit.promql import quoted

# How long before the alert its cause may have begun: the window of its expression and its `for`.
DELAYS: Mapping[str, float] = {
    "GpuThrottledThermal": 60.0,
    "GpuThrottledPowerBrake": 60.0,
    "GpuThrottledHardware": 75.0,
    "GpuXidCritical": 60.0,
    "GpuLost": 120.0,
    "FabricMassEvent": 60.0,
    "HostOutOfMemory": 60.0,
    "NicLinkDown": 300.0,
}
USUAL_DELAY = 600.0

_FAMILIES = {
    "GpuThrottled": "throttle",
    "GpuPowerCap": "throttle",
    "GpuClock": "clock",
    "Nic": "link",
    "NodeExporterNic": "link",
    "Fabric": "link",
    "GpuXid": "xid",
    "GpuLost": "xid",
    "GpuPcie": "pcie",
    "Host": "host",  # the kernel's line and its alert are one fact
}


def family_of(alertname: str) -> str:
    """Return the family of causes that the alert belongs to."""
    return next((family for prefix, family in _FAMILIES.items() if alertname.startswith(prefix)), "gpu")


def cause_alerts(others: Iterable[Incident], cluster: str) -> list[Alert]:
    """Return the alerts in this cluster that can slow a run down and fire, or did in an incident that continues."""
    return [
        alert
        for incident in others
        if incident.cluster == cluster
        for alert in incident.members
        if is_cause(alert) and (alert.firing or incident.firing)
    ]


def alerts(questions: Questions) -> Look:
    """Return the alerts that concern the run, and what the run's own symptoms name."""
    possible = cause_alerts(questions.others, questions.incident.cluster)
    ports = questions.ports
    # Two Prometheus may both report the same alert.
    single = {(alert.name, part_of(alert.labels)): alert for alert in possible}.values()
    facts = [_fact(alert, ports, questions.roster) for alert in single if concerns(alert, questions.roster, ports)]
    return Look((*facts, *_symptoms(questions.incident, questions)), frozenset({"alert", "symptom"}))


def _fact(alert: Alert, ports: Sequence[Port], roster: Roster) -> Fact:
    scope, name = scope_of(alert.labels)
    labels = {key: alert.labels[key] for key in ("node", "gpu", "device", "port") if alert.labels.get(key)}
    there = _ports_at(scope, name, ports)
    touched, of, strength = None, None, 1.0
    if scope == "rack":
        touched, of = (
            float(sum(place.get("rack") == name for place in roster.places.values())),
            float(len(roster.nodes)),
        )
    elif there:
        touched, of = float(sum(port.lost is True for port in there)), float(len(there))
        strength = 1.0 if touched else 0.0 if any(port.lost is False for port in there) else 0.5
    return Fact(
        "alert",
        labels or ({scope: name} if name else {}),
        alert.name,
        began=alert.starts_at,
        precision=DELAYS.get(alert.name, USUAL_DELAY),
        # An alert that ended long before the drop did not cause it, even if its incident continues.
        ended=None if alert.firing else alert.ends_at,
        strength=strength,
        value=touched,
        peers=of,
        source=f"ALERTS{{alertname={quoted(alert.name)}}}",
    )


def _symptoms(incident: Incident, questions: Questions) -> Iterator[Fact]:
    """Yield the node and the rank that the run's own alerts name, and garbage collection."""
    for alert in incident.members:
        if alert.name not in RUN_SYMPTOMS or not alert.firing:
            continue
        node, rank = alert.labels.get("node", ""), alert.labels.get("rank", "")
        source = f"ALERTS{{alertname={quoted(alert.name)}}}"
        if node:
            place = questions.ranks.get(rank)
            gpu = alert.labels.get("gpu", "") or (place.gpu if place is not None else "")
            labels = {"node": node, "gpu": gpu} if gpu else {"node": node}
            detail = f"rank {rank}" if rank else "its rank" if gpu else "several ranks"
            yield Fact("symptom", labels, f"{alert.name}: {detail}", began=None, source=source)
        elif alert.name == "TrainGarbageCollection":
            yield Fact("symptom", {}, alert.name, source=source)


def concerns(alert: Alert, roster: Roster, ports: Sequence[Port]) -> bool:
    """Return whether the alert concerns the run: one of its GPUs, a port of its nodes, its switch or its rack.

    A rail is as wide as the cluster: it counts if a port of the run on it lost its link, or may have. An alert that
    names no place concerns the whole cluster.
    """
    node, gpu = alert.labels.get("node", ""), alert.labels.get("gpu")
    scope, name = scope_of(alert.labels)
    if not roster.gpus:
        return False
    if scope == "rack":
        return any(place.get("rack") == name for place in roster.places.values())
    if scope in ("switch", "rail"):
        return any(scope == "switch" or port.lost is not False for port in _ports_at(scope, name, ports))
    if scope == "cluster":
        return True
    return node in roster.gpus and (gpu is None or gpu in roster.gpus[node])


def unrelated(incident: Incident, roster: Roster, ports: Sequence[Port]) -> Iterator[str]:
    """Yield firing alerts in the run's incident on parts that the run has moved off since."""
    if not roster.gpus:
        return
    for alert in incident.members:
        placed = bool(alert.labels.get("node")) or is_cause(alert)
        if alert.firing and placed and not alert.labels.get("run") and not concerns(alert, roster, ports):
            yield alert.fingerprint


def _ports_at(scope: str, name: str, ports: Iterable[Port]) -> list[Port]:
    return [port for port in ports if name and name == {"switch": port.switch, "rail": port.rail}.get(scope)]


def _alert(fact: Fact) -> str:
    verb, over = ("firing", "") if fact.ended is None else ("fired", f", ended at {clock_utc(fact.ended)}")
    told = f"{fact.detail} {verb} since {clock_utc(fact.began or 0.0)}{over}"
    if fact.value and fact.peers:
        if fact.labels.get("rack"):
            return f"{told}, {fact.value:.0f} of the run's {fact.peers:.0f} nodes are in it"
        whose = "its link" if fact.value == 1 else "their link"
        return f"{told}, {fact.value:.0f} of the run's {fact.peers:.0f} ports there lost {whose}"
    return told


def _alert_title(facts: Sequence[Fact]) -> str:
    return NAMED_CAUSES.get(facts[0].detail, (0.0, facts[0].detail))[1]


SUBJECT = Subject(
    8,
    {
        "alert": Kind("gpu", "", 0.0, 1800.0, says=_alert, title=_alert_title, by_detail=True),
        "symptom": Kind("context", "", -9.0, by_detail=True),
    },
    (Query(alerts, first_look=5),),
)
