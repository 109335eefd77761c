"""Find the incidents that are one: the same part, a common fault domain, a storm. Pure functions without I/O.

Three links of one leaf switch do not fail by chance within minutes, nor do three nodes of one rack overheat: the
message should name `switch leaf-12`, once. Where the wiring is unknown, many nodes with the same alert within a minute
still make one message: at one bring-up 10,000 temperature alarms came in (Imbue, 70B report).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from pyrometer_alerting.incidents.lifecycle import MAX_EPISODES
from pyrometer_alerting.model.alert_names import DEATH, MASS_EVENT
from pyrometer_alerting.model.harm import rank
from pyrometer_alerting.model.incident import NO_SINGLE_PART, Alert, Cause, Diagnosis, Incident, part_of
from pyrometer_alerting.model.places import Topology, touches

DOMAIN_PARTS = 3  # ports of one switch, nodes of one rack
DOMAIN_SECONDS = 300.0
STORM_NODES = 5  # more nodes with one alert, or...
FLOOD_MESSAGES = 10  # ... more messages of any kind ...
STORM_SECONDS = 60.0  # ... that started within this period make one message
SAME_EVIDENCE = 0.9  # another part with the same trouble and a score this close explains the symptom as well
LINK_SECONDS = 8.0  # a scrape of 5 s and its evaluation: by then throttling has been seen

_Bucket: TypeAlias = tuple[str, ...]


@dataclass(frozen=True)
class Group:
    """Incidents that are one, and their common domain (empty for a single part)."""

    incidents: tuple[Incident, ...]
    domain: str


@dataclass(frozen=True)
class _BucketEntry:
    """One firing alert in one bucket."""

    incident: Incident
    alert: Alert


def groups(opened: Sequence[Incident], current: Sequence[Incident], topology: Topology) -> list[Group]:
    """Group the firing incidents that belong together; each group includes at least one of `opened`."""
    everything = [*opened, *current]
    fresh = {incident.id for incident in opened}
    union = _Union()
    for bucket, entries in sorted(_buckets(everything, topology).items(), key=lambda item: _ORDER.index(item[0][0])):
        together = _together(bucket, entries, union)
        if together and any(incident.id in fresh for incident in together):
            union.join([incident.id for incident in together], _domain(bucket))
    by_root: dict[str, list[Incident]] = defaultdict(list)
    for incident in everything:
        by_root[union.root(incident.id)].append(incident)
    return [Group(tuple(members), union.domain(root)) for root, members in by_root.items() if len(members) > 1]


_ORDER = ("part", "node", "host", "switch", "rail", "rack", "storm", "flood")


def _buckets(incidents: Iterable[Incident], topology: Topology) -> dict[_Bucket, list[_BucketEntry]]:
    buckets: dict[_Bucket, list[_BucketEntry]] = defaultdict(list)
    for incident in incidents:
        for alert in incident.members:
            if alert.firing:
                for kind, *rest in _places(incident, alert, topology):
                    buckets[(kind, incident.channel, incident.cluster, *rest)].append(_BucketEntry(incident, alert))
    return buckets


def _places(incident: Incident, alert: Alert, topology: Topology) -> Iterator[_Bucket]:
    """Yield the buckets that an alert falls into; cluster and channel are added later."""
    labels = alert.labels
    # A flood of other alerts never absorbs a run's incident: its headline is what the channel must see.
    yield ("flood", "runs" if incident.run else "parts")
    if incident.run or (incident.component == "stack" and "node" not in labels):
        return
    node = labels.get("node", "")
    if node and (labels.get("gpu") or labels.get("device")):
        yield ("part", part_of(labels))
    if node:
        yield ("node", node)
    if node and incident.component == "nic":
        yield ("host", node)
    located = topology.located(labels, incident.cluster)
    if switch := located.get("switch"):
        yield ("switch", switch)
    elif rail := located.get("rail"):
        yield ("rail", rail)
    if node and (rack := located.get("rack")):
        yield ("rack", alert.name, rack)
    if node:
        yield ("storm", alert.name)


def _together(bucket: _Bucket, entries: Sequence[_BucketEntry], union: _Union) -> list[Incident]:
    """Return the incidents of a bucket that are one; none where they may be a coincidence."""
    kind = bucket[0]
    seconds = STORM_SECONDS if kind in ("storm", "flood") else DOMAIN_SECONDS
    newest = max(entry.alert.starts_at for entry in entries)
    near = [entry for entry in entries if _belongs(entry, newest - seconds, _domain(bucket))]
    incidents = list({entry.incident.id: entry.incident for entry in near}.values())
    if kind == "part":
        return list({entry.incident.id: entry.incident for entry in entries}.values())
    if kind == "node":  # an incident that is named after its node takes in what begins inside of it, and no other does
        return incidents if any(incident.domain == bucket[-1] for incident in incidents) else []
    nodes = {entry.alert.labels.get("node", "") for entry in near}
    separate = len({union.root(incident.id) for incident in incidents})
    if kind in ("host", "switch", "rail") and any(entry.alert.name == MASS_EVENT for entry in near):
        enough = True
    elif kind == "switch":
        enough = len({part_of(entry.alert.labels) for entry in near}) >= DOMAIN_PARTS
    elif kind == "flood":
        enough = separate > FLOOD_MESSAGES
    else:
        least = {"rail": DOMAIN_PARTS, "rack": DOMAIN_PARTS, "storm": STORM_NODES + 1}.get(kind)
        enough = least is not None and len(nodes) >= least
    return incidents if enough and separate > 1 else []


def _belongs(entry: _BucketEntry, since: float, domain: str) -> bool:
    """Return whether it is recent, or its incident already belongs to this domain."""
    return entry.alert.starts_at >= since or entry.incident.domain == domain


def _domain(bucket: _Bucket) -> str:
    kind = bucket[0]
    if kind in ("part", "node", "host"):
        return "" if kind == "part" else bucket[-1]
    return f"{kind} {bucket[-1]}" if kind in ("switch", "rail", "rack") else NO_SINGLE_PART


class _Union:
    """Sets of incident ids that only grow, each with its broadest domain."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}
        self._domains: dict[str, str] = {}

    def root(self, name: str) -> str:
        while (parent := self._parent.get(name, name)) != name:
            name = parent
        return name

    def domain(self, root: str) -> str:
        return self._domains.get(root, "")

    def join(self, names: Sequence[str], domain: str) -> None:
        first, *rest = dict.fromkeys(self.root(name) for name in names)
        for other in rest:
            self._parent[other] = first
            domain = domain or self._domains.get(other, "")
        self._domains[first] = domain or self._domains.get(first, "")


def widened_to_node(incident: Incident) -> Incident:
    """Name the incident after its node once three of the node's parts are in it."""
    if incident.domain or incident.run:
        return incident
    firing = [alert.labels for alert in incident.members if alert.firing]
    nodes = {labels.get("node", "") for labels in firing}
    parts = {part_of(labels) for labels in firing} - nodes
    alone = len(nodes) == 1 and "" not in nodes
    return replace(incident, domain=next(iter(nodes))) if alone and len(parts) >= DOMAIN_PARTS else incident


def explained_by(
    incident: Incident, diagnosis: Diagnosis, others: Iterable[Incident], topology: Topology | None = None
) -> list[Incident]:
    """Return the firing incidents that cause this run's trouble, as far as the diagnosis is convinced.

    An incident on a GPU, port or rank inside the blamed node, rack or switch is one of them, and so is one whose place
    contains the blamed part.
    Only those that explain it as well as the first cause: a link that flapped before keeps its own incident. An
    incident that already explains another run stays there, where that run's people read it. A link counts the moment it
    goes down, heat only while it lasts: right after a drop, a link that flapped shortly before may look like the better
    cause, so it must lead for a while.
    """
    before = incident.diagnosis
    led = _leading(before) if before is not None and diagnosis.at - before.at >= LINK_SECONDS else {}
    wiring, roster = topology or Topology(), diagnosis.roster
    parts = [
        wiring.located(cause.labels or {}, incident.cluster, roster)
        for part, cause in _leading(diagnosis).items()
        if not _is_link(cause) or part in led
    ]
    return [
        other
        for other in others
        if other.id != incident.id
        and other.firing
        and other.run in ("", incident.run)
        and (not other.run or "" in (other.job_id, incident.job_id) or other.job_id == incident.job_id)
        and (other.cluster, other.channel) == (incident.cluster, incident.channel)
        and touches(other, parts, wiring, roster)
    ]


def explained_already(incident: Incident, others: Iterable[Incident], topology: Topology, now: float) -> list[Incident]:
    """Return what this run's message explains without another look, once its first cause has led for a while.

    The message of a dead run explains only what began before its death, which the next look knows.
    """
    told = incident.diagnosis
    has_died = any(alert.name == DEATH for alert in incident.members)
    if not incident.firing or has_died or told is None or now - (told.concluded_at or now) < LINK_SECONDS:
        return []
    return explained_by(incident, replace(told, at=told.at + LINK_SECONDS), others, topology)


def _leading(diagnosis: Diagnosis) -> dict[str, Cause]:
    """Return by part the first cause and those of the same kind that score close to it."""
    first = max(diagnosis.causes, key=lambda cause: cause.score, default=None)
    if first is None:
        return {}
    return {
        cause.part: cause
        for cause in diagnosis.causes
        if cause.labels and cause.cause == first.cause and cause.score >= SAME_EVIDENCE * first.score
    }


def _is_link(cause: Cause) -> bool:
    labels = cause.labels or {}
    return "device" in labels or (cause.family == "link" and "node" in labels)


def merged_incident(incidents: Sequence[Incident], domain: str) -> Incident:
    """Merge them into the first one's place, named after a run's symptom if one is among them, else after the worst."""
    first = incidents[0]
    lead = max(incidents, key=lambda incident: (incident.wants_diagnosis, rank(incident.severity)))
    members = {alert.fingerprint: alert for incident in incidents for alert in incident.members}
    keys = dict.fromkeys(key for incident in incidents for key in (incident.key, *incident.keys))
    episodes = sorted(episode for incident in incidents for episode in incident.episodes)
    return replace(
        lead,
        id=first.id,
        key=first.key,
        keys=tuple(key for key in keys if key != first.key),
        severity=max((incident.severity for incident in incidents), key=rank),
        started_at=min(incident.started_at for incident in incidents),
        episodes=tuple(episodes[-MAX_EPISODES:]),
        members=tuple(members.values()),
        truncated=max(incident.truncated for incident in incidents),
        domain=domain or next((incident.domain for incident in incidents if incident.domain), ""),
        acknowledged=first.acknowledged,
        note=first.note,
        channel=first.channel,
    )
