"""Alerts, causes, diagnoses and incidents as plain values; times are Unix seconds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pyrometer_alerting.model.fact import DOMAINS, Fact, Roster, fact_from, facts_to, roster_from

SEVERITIES: tuple[str, ...] = ("info", "warning", "critical")  # docs/design.md: digest only, look today, wake someone
CONFIDENCES = ("low", "medium", "high")
# Below this share a run is as fast as before: the wave of a day is 1 to 2 % (Llama 3), and rules fire from 7 % on.
SLOWER = 0.05
LEAST_GPU_HOURS = 0.005  # a smaller cost is not told
NO_SINGLE_PART = "no single part"  # the part of a cause or a domain that is everywhere


@dataclass(frozen=True)
class Alert:
    """One alert in the state that Alertmanager last reported."""

    fingerprint: str
    firing: bool
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    starts_at: float
    ends_at: float | None = None

    @property
    def name(self) -> str:
        """The rule's name, with a fallback so that a nameless alert is still shown."""
        return self.labels.get("alertname", "unnamed alert")

    @property
    def user(self) -> str:
        """The owner of the run's job: an annotation, as Prometheus keeps a label's template that comes to nothing."""
        return self.annotations.get("user", "")


@dataclass(frozen=True)
class Cause:
    """A likely cause: the part in the channel's notation, the reason, and the evidence for and against it."""

    part: str
    cause: str
    evidence: tuple[str, ...] = ()
    against: tuple[str, ...] = ()
    since: float | None = None
    score: float = 0.0
    labels: Mapping[str, str] | None = None
    confidence: str = ""  # of CONFIDENCES; empty for `unknown`
    family: str = ""  # what it does to a step: throttle, link, host, ... (diagnosis/evidence)
    brief: str = ""  # the strongest evidence in a few words, without its time
    runbook: str = ""  # heading of the runbook whose first step is for this cause


@dataclass(frozen=True)
class Shape:
    """The known trouble that the run's MFU curve resembles: kind, confidence 0-1, wording, a second kind if likely."""

    kind: str
    confidence: float
    said: str
    also: str = ""
    look_at: str = ""

    @property
    def is_known(self) -> bool:
        """True if the curve resembles a known trouble."""
        return self.kind not in ("unknown", "steady")

    @property
    def confidence_note(self) -> str:
        """`, 75 % sure`, to follow `said`; empty for a stopped run, which is measured and not judged."""
        return "" if self.kind == "stopped" else f", {100 * self.confidence:.0f} % sure"


@dataclass(frozen=True)
class Cost:
    """GPU-hours lost from `since` to `until` on this many GPUs, against this expected MFU (a ratio).

    `settled` of them were lost up to `settled_until`: what came later is counted again, as batches may arrive late.
    """

    gpu_hours: float
    gpus: int
    expected: float
    until: float
    since: float | None = None
    settled: float = 0.0
    settled_until: float | None = None


@dataclass(frozen=True)
class ChartCurve:
    """MFU of the batches over time, for a small chart: Unix seconds; median, lowest and expected MFU as ratios."""

    at: tuple[float, ...]
    median: tuple[float, ...]
    lowest: tuple[float, ...]
    expected: float


@dataclass(frozen=True)
class Diagnosis:
    """Ranked causes at one moment and the evidence that was missing; `onset` is the start of the symptom, if known.

    `seen` are causes of low confidence, which do not convince. `drops` are the onsets of all drops, the first first;
    `recovered` is when the run was good again. `answered` has the time of each provider's last answer.
    """

    at: float
    causes: tuple[Cause, ...] = ()
    missing: tuple[str, ...] = ()
    onset: float | None = None
    shape: Shape | None = None
    cost: Cost | None = None
    curve: ChartCurve | None = None
    told_at: float | None = None  # when the message last showed it; newer numbers wait for the next edit
    strangers: tuple[str, ...] = ()  # fingerprints of the incident's own alerts on parts that the run does not use
    seen: tuple[Cause, ...] = ()
    facts: tuple[Fact, ...] = ()
    roster: Roster | None = None
    drops: tuple[float, ...] = ()
    recovered: float | None = None
    answered: Mapping[str, float] = field(default_factory=dict)
    concluded_at: float | None = None  # when the first cause became the first one
    revision: str = ""  # why the first cause was replaced the last time, for the thread
    run_links: tuple[tuple[str, str], ...] = ()  # name and address of the run's pages in trackers
    slower: float | None = None  # the share of its MFU that the run lacks now; below 0 where it has more
    slowest: float | None = None  # the same at its worst
    told: tuple[float, float] = (0.0, 0.0)  # `slower` and GPU-hours when the card was last edited for its numbers
    user: str = ""  # whose job the run is, where all its GPUs have one user
    restart: str = ""  # of a dead run: how often it died, how old its last checkpoint is

    @property
    def names_cause(self) -> bool:
        """True if the first cause is one that people can confirm or deny: not `unknown`."""
        return bool(self.causes) and bool(self.causes[0].cause)

    @property
    def measured_slower(self) -> float | None:
        """The share by which the run is slower now; None until a batch has shown the drop."""
        return self.slower if self.slowest is not None and self.slowest >= SLOWER else None

    @property
    def lead(self) -> tuple[str, str, bool]:
        """The part that is blamed first and what kind of trouble it has, if any is, and whether the run is stopped."""
        part, family = (self.causes[0].part, self.causes[0].family) if self.names_cause else ("", "")
        return part, family, self.shape is not None and self.shape.kind == "stopped"

    def signature(self) -> tuple[object, ...]:
        """Return a key that is equal for two diagnoses of which a reader need not be told both."""
        first = tuple((cause.part, cause.cause, cause.confidence) for cause in self.causes[:1])
        others = frozenset((cause.part, cause.cause) for cause in self.causes[1:])
        silent = frozenset(self.roster.silent) if self.roster is not None else frozenset()
        curve = self.shape is not None and self.shape.is_known, self.shape is not None and self.shape.kind == "stopped"
        return first, others, bool(self.missing) and not any(cause.cause for cause in self.causes), silent, curve


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
    keys: tuple[str, ...] = ()  # keys of the incidents that were merged into this one
    domain: str = ""  # the common domain of all members, in the channel's notation: `switch leaf-12`, `rack r07`
    joined_into: str = ""  # the incident that absorbed this one after it had its own message
    note: str = ""  # more about its state: silenced, inhibited, its resolve was lost
    acknowledged: str = ""  # by whom
    channel: str = ""  # channel of its message; empty for the service's own
    parted_run: str = ""  # the run whose incident included this one until `parted_at`
    parted_at: float | None = None
    use: str = ""  # who uses the part (model/harm.py); empty while that is not known

    @property
    def firing(self) -> bool:
        """True while any member fires."""
        return self.resolved_at is None

    @property
    def began(self) -> float:
        """When the trouble began: the onset that the diagnosis found, at the latest the first alert."""
        onset = self.diagnosis.onset if self.diagnosis is not None else None
        return self.started_at if onset is None else min(onset, self.started_at)

    @property
    def is_posted(self) -> bool:
        """True unless the severity is info, which is for the page and the digest only."""
        return self.severity != "info"

    @property
    def job_id(self) -> str:
        """The run's job, by its newest alert that has one; empty where exporters until 0.2.0 alone report the run."""
        named = [alert for alert in self.members if alert.labels.get("run") == self.run and alert.labels.get("job_id")]
        newest = max(named, key=lambda alert: (alert.firing, alert.starts_at), default=None) if self.run else None
        return newest.labels["job_id"] if newest is not None else ""

    @property
    def run_title(self) -> str:
        """The run's name with its user and job, which tell it from others of that name: `train (ada, 4711)`."""
        job_id = self.job_id
        named = (alert.user for alert in self.members if alert.labels.get("job_id") == job_id)
        user = next(filter(None, named), "") if job_id else ""
        known = ", ".join(filter(None, (user, job_id)))
        return f"{self.run} ({known})" if known else self.run

    @property
    def wants_diagnosis(self) -> bool:
        """True for a symptom of a training run: its cause is elsewhere and must be found."""
        return bool(self.run) and self.component == "train"

    def newest(self) -> Alert:
        """Return the member that represents the incident: firing, of the alert it is named after, the latest."""
        return max(self.members, key=lambda alert: (alert.firing, alert.name == self.alertname, alert.starts_at))

    def alertnames(self) -> list[str]:
        """Return the names of its alerts, the one that the incident is named after first."""
        return list(dict.fromkeys([self.alertname, *(alert.name for alert in self.members)]))


def part_of(labels: Mapping[str, str]) -> str:
    """Return the part that these labels identify, in the channel's notation; empty if they identify none."""
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
    return next((f"{name.replace('_', ' ')} {labels[name]}" for name in DOMAINS if labels.get(name)), "")


def to_json(incident: Incident) -> str:
    """Serialize an incident for the store, in ASCII so that no character can make a write fail."""
    document = dict(vars(incident))  # asdict would copy every label of a large incident, one at a time
    document["members"] = [vars(alert) for alert in incident.members]
    if incident.diagnosis is not None:
        facts = facts_to(incident.diagnosis.facts)
        document["diagnosis"] = asdict(replace(incident.diagnosis, facts=())) | {"facts": facts}
    return json.dumps(document)


def from_json(document: str) -> Incident:
    """Parse what `to_json` wrote."""
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


def _causes(raw: Iterable[Mapping[str, Any]]) -> tuple[Cause, ...]:
    return tuple(
        Cause(**{**cause, "evidence": tuple(cause["evidence"]), "against": tuple(cause["against"])}) for cause in raw
    )


def _diagnosis(raw: Mapping[str, Any]) -> Diagnosis:
    shape, cost, curve = raw.get("shape"), raw.get("cost"), raw.get("curve")
    return Diagnosis(
        at=raw["at"],
        causes=_causes(raw["causes"]),
        seen=_causes(raw.get("seen", ())),
        facts=tuple(map(fact_from, raw.get("facts", ()))),
        roster=roster_from(raw.get("roster")),
        drops=tuple(raw.get("drops", ())),
        recovered=raw.get("recovered"),
        answered=raw.get("answered", {}),
        concluded_at=raw.get("concluded_at"),
        revision=raw.get("revision", ""),
        run_links=tuple((name, url) for name, url in raw.get("run_links", ())),
        slower=raw.get("slower"),
        slowest=raw.get("slowest"),
        told=tuple(raw.get("told", (0.0, 0.0))),
        restart=raw.get("restart", ""),
        user=raw.get("user", ""),
        missing=tuple(raw["missing"]),
        onset=raw["onset"],
        told_at=raw.get("told_at"),
        strangers=tuple(raw.get("strangers", ())),
        shape=None if shape is None else Shape(**shape),
        cost=None if cost is None else Cost(**cost),
        curve=None if curve is None else _curve(curve),
    )
