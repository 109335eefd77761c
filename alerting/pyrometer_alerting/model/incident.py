"""What the service knows: alerts, incidents, causes. Plain values; times are Unix seconds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

SEVERITIES = ("info", "warning", "critical")  # DESIGN: digest only, look today, wake someone


@dataclass(frozen=True)
class Alert:
    """One alert as Alertmanager last told it."""

    fingerprint: str
    firing: bool
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    starts_at: float
    ends_at: float | None = None

    @property
    def name(self) -> str:
        """The rule's name; an alert without one is still shown."""
        return self.labels.get("alertname", "unnamed alert")


@dataclass(frozen=True)
class Cause:
    """A likely cause: the part in the channel's notation, why, what speaks for it and what against it."""

    part: str
    cause: str
    evidence: tuple[str, ...] = ()
    against: tuple[str, ...] = ()
    since: float | None = None
    score: float = 0.0
    labels: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Shape:
    """Which known trouble the run's MFU curve looks like: kind, confidence 0-1, in words; in words what else."""

    kind: str
    confidence: float
    said: str
    also: str = ""
    look_at: str = ""

    @property
    def is_known(self) -> bool:
        """Whether it looks like any trouble that is known."""
        return self.kind not in ("unknown", "steady")

    @property
    def confidence_note(self) -> str:
        """`, 75 % sure` to come after `said`; nothing where the run stands, which is counted, not judged."""
        return "" if self.kind == "stopped" else f", {100 * self.confidence:.0f} % sure"


@dataclass(frozen=True)
class Cost:
    """GPU-hours lost until then, of so many GPUs, against this expected MFU (a ratio)."""

    gpu_hours: float
    gpus: int
    expected: float
    until: float


@dataclass(frozen=True)
class ChartCurve:
    """The MFU of the batches by time, for a small chart: Unix seconds; median, lowest and expected MFU as ratios."""

    at: tuple[float, ...]
    median: tuple[float, ...]
    lowest: tuple[float, ...]
    expected: float


@dataclass(frozen=True)
class Diagnosis:
    """Ranked causes at one moment, and which evidence was missing. `onset` is when the symptom began, where known."""

    at: float
    causes: tuple[Cause, ...] = ()
    missing: tuple[str, ...] = ()
    onset: float | None = None
    shape: Shape | None = None
    cost: Cost | None = None
    curve: ChartCurve | None = None
    told_at: float | None = None  # when the message last said it; later numbers wait for the next edit
    strangers: tuple[str, ...] = ()  # fingerprints of the incident's own alerts whose parts the run does not use

    def signature(self) -> tuple[object, ...]:
        """What must be equal for two diagnoses to say the same thing with other numbers."""
        parts = tuple((cause.part, cause.cause) for cause in self.causes)
        return parts, self.missing, self.shape.kind if self.shape is not None else ""


@dataclass(frozen=True)
class Incident:
    """One message in the channel: all alerts of one key, from first firing to resolve, and its repetitions."""

    id: str
    key: str
    cluster: str
    alertname: str
    run: str
    severity: str
    component: str
    received_at: float
    started_at: float
    resolved_at: float | None = None
    episodes: tuple[tuple[float, float], ...] = ()
    members: tuple[Alert, ...] = ()
    truncated: int = 0
    diagnosis: Diagnosis | None = None
    picture: str = ""  # Slack's id of the uploaded chart
    keys: tuple[str, ...] = ()  # of the incidents that were joined into this one
    domain: str = ""  # what all members have in common, in the channel's notation: `switch leaf-12`, `rack r07`
    joined_into: str = ""  # the incident that this one became part of after it had its own message
    note: str = ""  # what else is known of its state: silenced, inhibited, its resolve was lost
    acknowledged: str = ""  # by whom
    channel: str = ""  # where it is told; empty for the service's own channel
    parted_run: str = ""  # the run whose incident this was a part of, until `parted_at`
    parted_at: float | None = None

    @property
    def firing(self) -> bool:
        """Whether any member still fires."""
        return self.resolved_at is None

    @property
    def is_posted(self) -> bool:
        """Info is for the page (and the digest), not for the channel."""
        return self.severity != "info"

    @property
    def wants_diagnosis(self) -> bool:
        """A symptom of a training run has its cause elsewhere: that is what we look for."""
        return bool(self.run) and self.component == "train"

    def newest(self) -> Alert:
        """The member that speaks for the incident: a firing one, of the alert it is named after, the latest."""
        return max(self.members, key=lambda alert: (alert.firing, alert.name == self.alertname, alert.starts_at))

    def alertnames(self) -> list[str]:
        """The alerts in it, the one it is named after first."""
        return list(dict.fromkeys([self.alertname, *(alert.name for alert in self.members)]))


def part_of(labels: Mapping[str, str]) -> str:
    """The part that these labels mean, in the channel's notation; empty when they mean none."""
    node = labels.get("node", "")
    if node and labels.get("gpu"):
        return f"{node} GPU {labels['gpu']}"
    if node and labels.get("device"):
        port = labels.get("port")
        return f"{node} {labels['device']}/{port}" if port else f"{node} {labels['device']}"
    if node:
        return f"{node} rank {labels['rank']}" if labels.get("rank") else node
    if labels.get("switch"):
        return f"switch {labels['switch']}"
    if labels.get("rail"):
        return f"rail {labels['rail']}"
    return f"rack {labels['rack']}" if labels.get("rack") else ""


def culprits(incident: Incident) -> list[str]:
    """The parts to blame: of the diagnosis, what all members share, the members' own; no `unknown` among them."""
    own = [part_of(alert.labels) for alert in incident.members if alert.firing == incident.firing]
    found = [cause.part for cause in incident.diagnosis.causes if cause.labels] if incident.diagnosis else []
    return list(dict.fromkeys(part for part in [*found, incident.domain, *own] if part))


def to_json(incident: Incident) -> str:
    """For the store: ASCII only, so that no odd character can make a write fail."""
    document = dict(vars(incident))  # asdict would copy every label of a storm, one by one
    document["members"] = [vars(alert) for alert in incident.members]
    document["diagnosis"] = None if incident.diagnosis is None else asdict(incident.diagnosis)
    return json.dumps(document)


def from_json(document: str) -> Incident:
    """The inverse of to_json."""
    raw: dict[str, Any] = json.loads(document)
    diagnosis = raw["diagnosis"]
    return replace(
        Incident(**raw),
        episodes=tuple((start, end) for start, end in raw["episodes"]),
        members=tuple(Alert(**member) for member in raw["members"]),
        keys=tuple(raw.get("keys", ())),
        diagnosis=None if diagnosis is None else _diagnosis(diagnosis),
    )


def _curve(raw: Mapping[str, Any]) -> ChartCurve:
    return ChartCurve(tuple(raw["at"]), tuple(raw["median"]), tuple(raw["lowest"]), raw["expected"])


def _diagnosis(raw: Mapping[str, Any]) -> Diagnosis:
    causes = tuple(
        Cause(**{**cause, "evidence": tuple(cause["evidence"]), "against": tuple(cause["against"])})
        for cause in raw["causes"]
    )
    shape, cost, curve = raw.get("shape"), raw.get("cost"), raw.get("curve")
    return Diagnosis(
        at=raw["at"],
        causes=causes,
        missing=tuple(raw["missing"]),
        onset=raw["onset"],
        told_at=raw.get("told_at"),
        strangers=tuple(raw.get("strangers", ())),
        shape=None if shape is None else Shape(**shape),
        cost=None if cost is None else Cost(**cost),
        curve=None if curve is None else _curve(curve),
    )
