"""Rank the causes of a slow run: the severity of the evidence, weighed by how well its time fits the drop.

The order of severity follows published practice for synchronous training (a lost GPU or link stops every rank; hardware
thermal slowdown and power brake cut clocks hardest; software thermal slowdown is gentler). A cause must reach
`CONVINCING` to be named; anything weaker is reported under `unknown`, never sold as a cause.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

import pandas as pd

from pyrometer_alerting.diagnosis.evidence import WINDOW_SECONDS, Evidence
from pyrometer_alerting.diagnosis.suspects import (
    Suspect,
    least_waiting,
    suspects_from_hosts,
    suspects_from_ranks,
    weigh_shape,
    weigh_time,
)
from pyrometer_alerting.model.alert_names import MASS_EVENT, is_cause
from pyrometer_alerting.model.incident import NO_SINGLE_PART, Alert, Cause, Diagnosis, Incident, part_of
from pyrometer_alerting.model.named_causes import NAMED_CAUSES
from pyrometer_alerting.model.text import clock_utc
from pyrometer_alerting.sources.topology import Port, scope_of

CONVINCING = 25.0
BROAD_GPUS = 8  # more throttling GPUs than one node has: no single part is to blame
FLAP_PAUSE_SECONDS = 120.0  # a flapping link may pause this long between two downs
LOW_CLOCK_RATIO = 0.9
UNTOUCHED = 0.15  # factor for a switch at which no port of the run lost its link: not convincing

_THROTTLE = {
    "hw_thermal": (100.0, "hardware thermal throttling"),
    "hw_power_brake": (95.0, "power brake"),
    "sw_thermal": (80.0, "software thermal throttling"),
    "hw_slowdown": (85.0, "hardware slowdown"),
}


def diagnose(incident: Incident, evidence: Evidence, others: Sequence[Incident], now: float) -> Diagnosis:
    """Rank the likely causes of this incident; `others` are the recent incidents in the store."""
    onset = evidence.onset if evidence.onset is not None else incident.started_at
    alerts = [alert for alert in cause_alerts(others, incident.cluster) if concerns(alert, evidence)]
    suspects = _throttling(evidence) + _flapping(evidence) + _slow_clocks(evidence)
    suspects = _one_per_part(
        [*suspects, *suspects_from_hosts(evidence.hosts, evidence.gpus), *suspects_from_ranks(evidence.ranks)]
    )
    suspects = _join_alerts(suspects, alerts, evidence)
    for suspect in suspects:
        weigh_time(suspect, onset, now)
        weigh_shape(suspect, evidence.shape)
        _weigh_wait(suspect, evidence)
    ranked = sorted((suspect.to_cause() for suspect in suspects), key=lambda cause: -cause.score)
    convincing = [cause for cause in ranked if cause.score >= CONVINCING]
    weak = [cause for cause in ranked if cause.score < CONVINCING]
    causes = _broadened(convincing, evidence) or [_unknown(evidence, weak, others, incident)]
    missing = (*evidence.missing, *evidence.hosts.missing, *evidence.ranks.missing)
    strangers = () if evidence.missing else tuple(_unrelated(incident, evidence))
    return Diagnosis(now, tuple(causes), missing, onset=evidence.onset, shape=evidence.shape, strangers=strangers)


def _one_per_part(suspects: Sequence[Suspect]) -> list[Suspect]:
    """Merge suspects on the same part: the gravest names it, the others confirm it."""
    by_part: dict[str, Suspect] = {}
    for suspect in sorted(suspects, key=lambda found: -found.score):
        part = part_of(suspect.labels) or suspect.cause
        if part in by_part:
            by_part[part].confirm(1.1, f"{suspect.cause} ({', '.join(suspect.evidence)})")
        else:
            by_part[part] = suspect
    return list(by_part.values())


def _weigh_wait(suspect: Suspect, evidence: Evidence) -> None:
    """Doubt a part on a node other than that of the rank that waits least: the run waits for that rank."""
    slowest = least_waiting(evidence.ranks.waits)
    if slowest is None or suspect.kind not in ("throttle", "clock", "pcie") or "node" not in suspect.labels:
        return
    labels, _wait, _median = slowest
    if labels["node"] != suspect.labels["node"]:
        suspect.doubt(0.7, f"the ranks wait for rank {labels['rank']} on {labels['node']}, not for this one")


def _throttling(evidence: Evidence) -> list[Suspect]:
    if evidence.throttles.empty:
        return []
    mine = evidence.throttles.merge(evidence.gpus.astype(str), on=["node", "gpu"])
    # Only GPUs that report can be called clean: nothing is known about a silent node.
    reporting = _of_run(evidence)[["node", "gpu"]]
    clean = len(reporting) - len(reporting.merge(mine[["node", "gpu"]].drop_duplicates(), on=["node", "gpu"]))
    # A thermal slowdown also counts as hardware slowdown: name the most specific reason that explains most of it.
    mine["weight"] = mine["seconds"] * mine["reason"].map({"hw_slowdown": 0.5}).fillna(1.0)
    leading = mine.sort_values("weight", ascending=False).drop_duplicates(["node", "gpu"])
    return [_throttled(row, evidence, clean) for row in leading.to_dict("records")]


def _throttled(row: Mapping[Hashable, object], evidence: Evidence, clean: int) -> Suspect:
    labels = {"node": str(row["node"]), "gpu": str(row["gpu"])}
    seconds, span = float(str(row["seconds"])), float(str(row["span"]))
    base, cause = _THROTTLE[str(row["reason"])]
    share = min(seconds / span, 1.0)
    suspect = Suspect(
        labels,
        cause,
        base * (0.3 + 0.7 * share),
        float(str(row["onset"])),
        last=float(str(row["last"])),
        kind="throttle",
    )
    suspect.evidence.append(f"throttled {seconds:.0f} s of {max(span, seconds):.0f} s since {clock_utc(suspect.onset)}")
    _judge_clock(suspect, evidence)
    if "thermal" in cause:
        _judge_temperature(suspect, evidence)
    if clean:
        suspect.evidence.append(f"the other {clean} GPUs of the run do not throttle")
    return suspect


def _judge_clock(suspect: Suspect, evidence: Evidence) -> None:
    clock, median, count = _clock_against_others(suspect.labels, evidence)
    if clock is None or median is None:
        suspect.against.append("SM clock not known")
        return
    against = f"SM clock down to {clock:.0f} MHz against {median:.0f} MHz (median of the run's other {count} GPUs)"
    if clock < 0.97 * median:
        suspect.evidence.append(against)
    else:
        suspect.doubt(0.4, against)


def _judge_temperature(suspect: Suspect, evidence: Evidence) -> None:
    row = _gpu_row(suspect.labels, evidence)
    if row is None or pd.isna(row["celsius"]):
        return
    if float(row["celsius"]) < 70:  # an H100 starts to slow down at 87 C; below 70 C heat is an unlikely explanation
        suspect.doubt(0.9, f"temperature normal ({float(row['celsius']):.0f} \u00b0C)")
    else:
        suspect.evidence.append(f"{float(row['celsius']):.0f} \u00b0C")


def _flapping(evidence: Evidence) -> list[Suspect]:
    suspects = []
    for row in evidence.flaps.to_dict("records"):
        labels = {name: str(row[name]) for name in ("node", "device", "port") if row[name]}
        downs, onset = round(float(row["downs"])), float(row["onset"])
        cause, base = ("link flapping", 80.0) if downs > 1 else ("a single link flap", 55.0)
        suspect = Suspect(labels, cause, base, onset, last=float(row["last"]), pause=FLAP_PAUSE_SECONDS, kind="link")
        times = f"{downs} times since {clock_utc(onset)}, last" if downs > 1 else "once,"
        suspect.evidence.append(f"link went down {times} at {clock_utc(float(row['last']))}")
        suspects.append(suspect)
    return suspects


def _slow_clocks(evidence: Evidence) -> list[Suspect]:
    """Find GPUs far below the others' clock that no throttle counter explains."""
    clocks = _of_run(evidence)
    if len(clocks) < 4:
        return []
    median = float(clocks["highest"].median())
    throttled = set(zip(evidence.throttles.get("node", []), evidence.throttles.get("gpu", []), strict=True))
    slow = clocks[clocks["highest"] < LOW_CLOCK_RATIO * median]  # during all of the last minute
    return [
        Suspect(
            {"node": str(row["node"]), "gpu": str(row["gpu"])},
            "low SM clock",
            60.0,
            onset=float("nan"),
            evidence=[f"SM clock {row['highest']:.0f} MHz against {median:.0f} MHz (median of the run)"],
            against=["no throttle reason counted"],
            kind="clock",
        )
        for row in slow.to_dict("records")
        if (row["node"], row["gpu"]) not in throttled
    ]


def _join_alerts(suspects: list[Suspect], alerts: Iterable[Alert], evidence: Evidence) -> list[Suspect]:
    """Let alerts confirm suspects on their parts, and turn alerts on other parts of the run into suspects.

    An alert on a whole switch, rail or host absorbs the suspects of its links, which are its effect.
    """
    # Two Prometheus may both report the same alert.
    for alert in {(alert.name, part_of(alert.labels)): alert for alert in alerts}.values():
        same = [suspect for suspect in suspects if part_of(suspect.labels) == part_of(alert.labels)]
        if same and alert.name != MASS_EVENT:
            same[0].evidence.append(_said(alert))
            same[0].score *= 1.1 if alert.firing else 1.0
        elif alert.name == MASS_EVENT or scope_of(alert.labels)[0]:
            suspects = _wide(alert, suspects, evidence)
        else:
            labels = {name: alert.labels[name] for name in ("node", "gpu", "device", "port") if alert.labels.get(name)}
            suspects.append(_suspect_from_alert(alert, labels))
    return suspects


def _said(alert: Alert) -> str:
    over = f", over since {clock_utc(alert.ends_at)}" if alert.ends_at is not None and not alert.firing else ""
    return f"{alert.name} {'fired' if over else 'firing'} since {clock_utc(alert.starts_at)}{over}"


def _suspect_from_alert(alert: Alert, labels: dict[str, str]) -> Suspect:
    base, cause = NAMED_CAUSES.get(alert.name, (50.0, alert.name))
    # An alert that ended long before the drop did not cause it, even if its incident continues.
    last = None if alert.firing else alert.ends_at
    return Suspect(labels, cause, base, alert.starts_at, [_said(alert)], last=last, kind=_kind_of(alert.name))


def _wide(alert: Alert, suspects: Sequence[Suspect], evidence: Evidence) -> list[Suspect]:
    """Turn the alert into one suspect with the run's losses there, and drop the suspects that it explains."""
    scope, name = scope_of(alert.labels)
    node = alert.labels.get("node", "")
    suspect = _suspect_from_alert(alert, {"node": node} if node else {scope: name} if name else {})
    there = _ports_at(scope, name, evidence)
    places = {part_of(port.labels) for port in there}
    explained = [
        suspect
        for suspect in suspects
        if suspect.kind == "link"
        and (part_of(suspect.labels) in places or (node and suspect.labels.get("node") == node))
    ]
    # The alert waits for a scrape and an evaluation; its links were seen going down earlier.
    suspect.onset = min([suspect.onset, *(suspect.onset for suspect in explained)])
    suspect.evidence += [f"{part_of(suspect.labels)}: {suspect.evidence[0]}" for suspect in explained[:3]]
    if there:
        _judge_ports(suspect, there)
    elif scope == "rack":
        inside = sum(rack == name for rack in evidence.racks.values())
        suspect.evidence.append(f"{inside} of the run's {len(evidence.nodes)} nodes are in it")
    return [*(suspect for suspect in suspects if suspect not in explained), suspect]


def _judge_ports(suspect: Suspect, ports: Sequence[Port]) -> None:
    """Weigh the suspect by how many of the run's ports there lost their link."""
    lost, of = sum(port.lost is True for port in ports), f"of the run's {len(ports)} ports there"
    if lost:
        suspect.evidence.append(f"{lost} {of} lost {'its' if lost == 1 else 'their'} link")
    elif any(port.lost is False for port in ports):
        suspect.doubt(UNTOUCHED, f"none {of} lost its link")
    else:
        suspect.doubt(0.8, f"unknown whether one {of} lost its link")


def _ports_at(scope: str, name: str, evidence: Evidence) -> list[Port]:
    return [port for port in evidence.ports if name and name == {"switch": port.switch, "rail": port.rail}.get(scope)]


def _kind_of(alertname: str) -> str:
    families = {
        "GpuThrottled": "throttle",
        "Nic": "link",
        "NodeExporterNic": "link",
        "Fabric": "link",
        "GpuXid": "xid",
        "GpuLost": "xid",
        "GpuPcie": "pcie",
    }
    return next((kind for prefix, kind in families.items() if alertname.startswith(prefix)), "gpu")


def cause_alerts(others: Iterable[Incident], cluster: str) -> list[Alert]:
    """Return the alerts in this cluster that can slow a run down and fire, or did in an incident that continues."""
    return [
        alert
        for incident in others
        if incident.cluster == cluster
        for alert in incident.members
        if is_cause(alert) and (alert.firing or incident.firing)
    ]


def concerns(alert: Alert, evidence: Evidence) -> bool:
    """Return whether the alert concerns the run: one of its GPUs, a port of its nodes, its switch or its rack.

    A rail is as wide as the cluster: it counts if a port of the run on it lost its link, or may have. An alert that
    names no place concerns the whole cluster.
    """
    node, gpu = alert.labels.get("node"), alert.labels.get("gpu")
    scope, name = scope_of(alert.labels)
    if evidence.gpus.empty:
        return False
    if scope == "rack":
        return name in evidence.racks.values()
    if scope in ("switch", "rail"):
        return any(scope == "switch" or port.lost is not False for port in _ports_at(scope, name, evidence))
    if scope == "cluster":
        return True
    alone = (evidence.gpus["node"] == node) & (evidence.gpus["gpu"] == gpu)
    return node in evidence.nodes and (gpu is None or bool(alone.any()))


def _unrelated(incident: Incident, evidence: Evidence) -> Iterator[str]:
    """Yield firing alerts in the run's incident on parts that the run has moved off since."""
    if evidence.gpus.empty:
        return
    for alert in incident.members:
        placed = bool(alert.labels.get("node")) or is_cause(alert)
        if alert.firing and placed and not alert.labels.get("run") and not concerns(alert, evidence):
            yield alert.fingerprint


def _broadened(causes: list[Cause], evidence: Evidence) -> list[Cause]:
    """Report that many GPUs of the run throttle at once and none is the culprit; list the worst below."""
    throttling = [cause for cause in causes if "throttling" in cause.cause and cause.labels and "gpu" in cause.labels]
    if len(throttling) <= max(BROAD_GPUS, len(evidence.gpus) // 4):
        return causes
    nodes = sorted({cause.labels["node"] for cause in throttling if cause.labels})
    summary = f"{len(throttling)} of the run's {len(evidence.gpus)} GPUs throttle, on {len(nodes)} nodes"
    return [Cause(NO_SINGLE_PART, throttling[0].cause, (summary,), score=throttling[0].score + 1), *causes]


def _unknown(evidence: Evidence, weak: Sequence[Cause], others: Sequence[Incident], incident: Incident) -> Cause:
    """Return `unknown` with what was checked, so that nobody checks it again, and the evidence that is too weak."""
    notes = []
    if evidence.nodes and not evidence.missing:
        counts = f"{len(evidence.gpus)} GPUs on {len(evidence.nodes)} nodes"
        notes.append(f"{counts}: no convincing throttling, flap or low clock in the last {WINDOW_SECONDS} s")
    if evidence.shape is not None and evidence.shape.look_at:
        notes.append(f"for such an MFU curve, check {evidence.shape.look_at}")
    notes += [
        f"seen but not convincing: {cause.part} {cause.cause} ({'; '.join(cause.against) or 'too little'})"
        for cause in weak[:2]
    ]
    if not evidence.nodes:
        alerts = cause_alerts(others, incident.cluster)
        notes += [
            f"{part_of(alert.labels) or NO_SINGLE_PART} {alert.name} fires; unknown whether the run uses it"
            for alert in alerts[:3]
        ]
    return Cause("unknown", "", tuple(notes))


def _of_run(evidence: Evidence) -> pd.DataFrame:
    if evidence.clocks.empty:
        return pd.DataFrame(columns=["node", "gpu", "lowest", "highest", "celsius"])
    return evidence.clocks.merge(evidence.gpus.astype(str), on=["node", "gpu"]).dropna(subset=["lowest"])


def _gpu_row(labels: dict[str, str], evidence: Evidence) -> pd.Series[float] | None:
    clocks = _of_run(evidence)
    mine = clocks[(clocks["node"] == labels["node"]) & (clocks["gpu"] == labels["gpu"])]
    return None if mine.empty else mine.iloc[0]


def _clock_against_others(labels: dict[str, str], evidence: Evidence) -> tuple[float | None, float | None, int]:
    """Return (lowest SM clock of this GPU, median of the run's other GPUs, number of those), in MHz."""
    clocks = _of_run(evidence)
    mine = (clocks["node"] == labels["node"]) & (clocks["gpu"] == labels["gpu"])
    own, others = clocks[mine], clocks[~mine]
    if own.empty or others.empty:
        return None, None, len(others)
    return float(own["lowest"].iloc[0]), float(others["lowest"].median()), len(others)
