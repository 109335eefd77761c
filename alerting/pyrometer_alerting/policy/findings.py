"""Find the nodes that a rule is about now, by a failed check, an alert or a cause, as Prometheus has seen them.

Nothing follows from silence: a Prometheus that does not answer raises, a series that is not there finds no node. How
long something has lasted is counted on Prometheus' samples, and of a check on its own looks: one look proves nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from pyrometer_alerting.incidents.storage.actions import DRAIN, WEBHOOK
from pyrometer_alerting.model.incident import CONFIDENCES, Incident, part_of
from pyrometer_alerting.policy.rules import ALERT, CAUSE, CHECK, Policy, Rule
from pyrometer_alerting.policy.schedulers import NodeState, word
from pyrometer_kit.prometheus import Prometheus, Series
from pyrometer_kit.promql import matching, quoted

# A diagnosis is renewed each half minute while its run is slow; one that is older was not confirmed.
FRESH_SECONDS = 180.0
AHEAD_SECONDS = 60.0
"""A node whose clock is ahead by more has set it: a result of its future proves nothing."""
COMMON_SECONDS = 900.0
"""Faults of one kind that begin within this time may have one cause."""
_STEPS = 45  # VictoriaMetrics moves the ends of a range of 50 points or more
# Checks run every five minutes (--collector.checks.interval), up to a tenth earlier or later: one look may be missing.
_CHECK_GAP, _SPREAD = 660.0, 0.1
_ALERT_GAP = 120.0  # a Prometheus that restarts
_IDENTITY = ("alertname", "cluster", "node", "run", "job_id", "check")


class Facts(Prometheus, Protocol):
    """The Prometheus that a policy asks: its partial answers are errors, and its clock counts."""

    def now(self) -> float:
        """Return its time (Unix seconds); raises PrometheusError."""
        ...


@dataclass(frozen=True)
class Topic:
    """A check, alert or cause by its name, wherever it is."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"

    @classmethod
    def read(cls, words: str) -> Topic:
        """Return the topic that was written like this."""
        kind, _, name = words.partition(" ")
        return cls(kind, name)


@dataclass(frozen=True)
class Run:
    """A node that had one fault without a break: times in Unix seconds of Prometheus.

    Attributes:
        since: when it was first seen, an alert also while it was pending; the look-back's begin if it is older.
        until: when it was last seen.
        lasted: the seconds that are proven by looks or by a firing alert; negative if nothing is.
        holds: whether it was so at the last moment.
        ended: whether the node was seen without it since.
    """

    cluster: str
    node: str
    since: float
    until: float
    lasted: float
    holds: bool
    ended: bool = False


@dataclass(frozen=True)
class Finding:
    """A node that a rule is about, what was found on it since when, and the incident that has it; empty without one."""

    cluster: str
    node: str
    rule: Rule
    what: str
    incident_id: str
    topic: Topic
    since: float


@dataclass(frozen=True)
class Look:
    """All that was found at a time: one finding of each node, and the runs of each topic."""

    now: float
    found: Sequence[Finding]
    runs: Mapping[Topic, Sequence[Run]]

    def of_node(self, topic: Topic, cluster: str, node: str) -> Run | None:
        """Return the latest run of a topic on a node; None if there was none for a while."""
        runs = [run for run in self.runs.get(topic, ()) if (run.cluster, run.node) == (cluster, node)]
        return max(runs, key=lambda run: run.until, default=None)


def look(
    policy: Policy,
    prometheus: Facts,
    incidents: Sequence[Incident],
    now: float,
    *,
    asked: Iterable[Topic] = (),
    ahead: float = 0.0,
) -> Look:
    """Return what holds now, of each node the first rule, and everything that may have the same cause.

    Args:
        policy: whose rules.
        prometheus: who is asked.
        incidents: those that are open here, for alerts and causes.
        now: Prometheus' time.
        asked: topics of open questions, which are looked at, too.
        ahead: how far Prometheus' clock is ahead of ours, which is that of incidents, in seconds.

    Raises:
        PrometheusError: it did not answer, so nothing is known.
    """
    firing = _confirmed(policy, prometheus, incidents, now)
    back = max((rule.seconds for rule in policy.rules), default=0.0) + 2 * COMMON_SECONDS
    members = [alert for incident in firing for alert in incident.members if alert.firing]
    alerts = [alert for alert in members if any(r.finding == ALERT and r.matches(alert.name) for r in policy.rules)]
    of_kind = {kind: {topic.name for topic in asked if topic.kind == kind} for kind in (CHECK, ALERT)}
    checks = of_kind[CHECK] | {alert.labels["check"] for alert in alerts if alert.labels.get("check")}
    patterns = [f"(?:{rule.pattern})" for rule in policy.rules if rule.finding == CHECK]
    runs = {
        **_check_runs(prometheus, patterns, checks, now, back),
        **_alert_runs(prometheus, of_kind[ALERT] | {alert.name for alert in alerts}, now, back),
        **_cause_runs(firing, now, ahead),
    }
    learned = _learned(prometheus, runs, now)
    by_node: dict[tuple[str, str], Finding] = {}
    for rule in policy.rules:
        for finding in _of_rule(rule, runs, firing):
            cluster, node, name = finding.cluster, finding.node, finding.topic.name
            is_known = cluster in policy.clusters or rule.do == WEBHOOK
            is_learned = finding.topic.kind == CHECK and (cluster, node, name) in learned
            if is_known and not (is_learned and rule.do in (DRAIN, WEBHOOK)):  # what was learned may warn, never drain
                by_node.setdefault((cluster, node), finding)
    found = list(by_node.values())
    if any(finding.topic.kind == CAUSE for finding in found):
        up = prometheus.instant('group by (cluster, node) (up{node!=""} == 1)', now)
        reporting = {(series.labels.get("cluster", ""), series.labels["node"]) for series in up}
        found = [each for each in found if each.topic.kind != CAUSE or (each.cluster, each.node) in reporting]
    return Look(now, found, runs)


def _confirmed(policy: Policy, prometheus: Facts, incidents: Sequence[Incident], now: float) -> list[Incident]:
    """Return the open incidents with those of their alerts that Prometheus says fire: anybody may post others."""
    firing = [incident for incident in incidents if incident.firing and not incident.joined_into]
    if not firing or all(rule.finding == CHECK for rule in policy.rules):
        return firing
    query = f'group by ({", ".join(_IDENTITY)}) (ALERTS{{alertstate="firing"}})'
    fires = {_identity(series.labels) for series in prometheus.instant(query, now)}
    members = [tuple(each for each in one.members if each.firing and _identity(each.labels) in fires) for one in firing]
    return [replace(incident, members=alerts) for incident, alerts in zip(firing, members, strict=True) if alerts]


def _identity(labels: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(labels.get(name, "") for name in _IDENTITY)


def missing_for_return(
    prometheus: Prometheus, cluster: str, state: NodeState, *, tests: Sequence[str], since: float, now: float
) -> str:
    """Return what a node that was drained at `since` still waits for, in words; empty if it may return.

    It waits for all these active tests, for its critical checks, and for whatever it was drained for.

    Raises:
        PrometheusError: it did not answer, so nothing is known.
    """
    where = f"cluster={quoted(cluster)}, node={quoted(state.name)}"

    def ask(metric: str, label: str, other: str = "") -> dict[tuple[str, str], float]:
        return _worst(prometheus.instant(f"{metric}{{{where}}}", now), label, other)

    at, verdict = (ask(f"pyrometer_active_test_{name}", "test", "peer") for name in ("timestamp_seconds", "ok"))
    new = [key for key, when in at.items() if since < when <= now + AHEAD_SECONDS]
    late = [test for test in tests if test not in {name for name, _ in new}]
    # A test of two nodes has a run with each of its peers: all that came since are to have passed.
    failed = [test for test in tests if any(key[0] == test and verdict.get(key) != 1.0 for key in new)]
    checks = {check: value for (check, _), value in ask("pyrometer_check_ok", "check").items()}
    looks = {check: when for (check, _), when in ask("pyrometer_check_last_run_timestamp_seconds", "check").items()}
    # An exporter that does not say how bad it is is of an earlier release: all that fails counts.
    reasons = ask("pyrometer_check_reason_info", "check", "severity")
    minor = {check for check, severity in reasons if severity in ("warning", "learned")}
    topics = set(state.claim.topics) if state.claim is not None else set()
    firing = prometheus.instant(f'ALERTS{{{where}, alertstate="firing", alertname=~".+"}}', now) if topics else []
    waits = {
        "test not run since": late,
        "test not passed": failed,
        "check failed": sorted(check for check, ok in checks.items() if ok != 1.0 and check not in minor - topics),
        "check not run since, or unknown": sorted(
            check
            for check in topics & looks.keys()
            if check not in checks or not since < looks[check] <= now + AHEAD_SECONDS
        ),
        "alert fires": sorted(topics & {word(series.labels.get("alertname", "")) for series in firing}),
    }
    if not checks:
        return "no result of the node's checks is known"
    return "; ".join(f"{what}: {', '.join(names)}" for what, names in waits.items() if names)


class _Span(NamedTuple):
    """One run, before it is known of whom; the fields are those of :class:`Run`."""

    since: float
    until: float
    lasted: float
    ended: bool


def _check_runs(
    prometheus: Prometheus, patterns: Sequence[str], asked: Collection[str], now: float, back: float
) -> dict[Topic, list[Run]]:
    """Return the runs of the checks that fail anywhere now and match one of the patterns, and of those asked for."""
    names = set(asked)
    if patterns:  # most fail nowhere, and their past need not be read
        query = f"group by (check) (pyrometer_check_ok{{check=~{quoted('|'.join(patterns))}}} == 0)"
        names |= {series.labels.get("check", "") for series in prometheus.instant(query, now)}
    if not names:
        return {}
    by, name = "by (cluster, node, check)", matching("check", sorted(names))
    failed = prometheus.instant(f"min {by} (min_over_time(pyrometer_check_ok{{{name}}}[{back:.0f}s])) == 0", now)
    if not failed:
        return {}
    values = {label: sorted({series.labels.get(label, "") for series in failed}) for label in ("check", "node")}
    of = f"{{{', '.join(matching(label, names) for label, names in values.items())}}}"
    # The time of the look, negative if it passed; a look without a result, or a silent exporter, is no point.
    query = f"max {by} (pyrometer_check_last_run_timestamp_seconds{of}) * (1 - 2 * max {by} (pyrometer_check_ok{of}))"
    return _runs(prometheus, query, now, back, _of_looks)


def _of_looks(points: Sequence[tuple[float, float]], step: float, _now: float) -> Iterator[_Span]:
    """Yield each time in which all looks failed; it lasted from its first look to its last, by both clocks."""
    run: list[tuple[float, float]] = []  # the first point of each look
    until = 0.0
    for at, look_at in [*points, (math.inf, 0.0)]:
        if run and (look_at <= 0 or at - until > max(_CHECK_GAP, 1.5 * step)):
            lasted = min(run[-1][0] - run[0][0] + step, run[-1][1] - run[0][1]) / (1 - _SPREAD)
            yield _Span(run[0][0], until, lasted if len(run) > 1 else -1.0, look_at < 0)
            run = []
        if look_at > 0:
            until = at
            if not run or run[-1][1] != look_at:
                run.append((at, look_at))


def _alert_runs(prometheus: Prometheus, names: Collection[str], now: float, back: float) -> dict[Topic, list[Run]]:
    """Return the runs of these alerts: Prometheus itself says that they fire."""
    if not names:
        return {}
    of = matching("alertname", sorted(names))
    fires = f'2 * ALERTS{{{of}, alertstate="firing"}}'
    query = f"max by (alertname, cluster, node) ({fires} or ALERTS{{{of}}})"
    return _runs(prometheus, query, now, back, _of_alert)


def _of_alert(points: Sequence[tuple[float, float]], step: float, now: float) -> Iterator[_Span]:
    """Yield each time in which it was pending (1) or firing (2); it lasted as long as it has been firing."""
    since = until = fired = 0.0
    gap = max(_ALERT_GAP, 1.5 * step)
    for at, value in [*points, (math.inf, 0.0)]:
        if since and at - until > gap:
            yield _Span(since, until, until - fired if fired else -1.0, min(at, now) - until > gap)
            since = fired = 0.0
        since, until = since or at, at
        fired = (fired or at) if value > 1 else 0.0


def _runs(
    prometheus: Prometheus,
    query: str,
    now: float,
    back: float,
    spans: Callable[[Sequence[tuple[float, float]], float, float], Iterable[_Span]],
) -> dict[Topic, list[Run]]:
    step = float(math.ceil(back / _STEPS))
    runs: dict[Topic, list[Run]] = {}
    for series in prometheus.range(query, now - _STEPS * step, now, step):
        labels = series.labels
        cluster, node = labels.get("cluster", ""), labels.get("node", "")
        topic = Topic(CHECK, labels["check"]) if "check" in labels else Topic(ALERT, labels.get("alertname", ""))
        for since, until, lasted, ended in spans(series.points, step, now) if cluster and node else ():
            run = Run(cluster, node, since, until, lasted, not ended and until > now - step / 2, ended)
            runs.setdefault(topic, []).append(run)
    return runs


def _cause_runs(firing: Sequence[Incident], now: float, ahead: float) -> dict[Topic, list[Run]]:
    """Return the nodes of causes that come first and were confirmed a moment ago; incidents have our own clock."""
    runs: dict[Topic, list[Run]] = {}
    for incident in firing:
        diagnosis = incident.diagnosis
        if diagnosis is None or not diagnosis.names_cause:
            continue
        until, since = diagnosis.at + ahead, (diagnosis.concluded_at or diagnosis.at) + ahead
        node = (diagnosis.causes[0].labels or {}).get("node", "")
        if node and now - until <= FRESH_SECONDS:
            holds = not diagnosis.missing
            run = Run(incident.cluster, node, since, until, now - since, holds)
            runs.setdefault(Topic(CAUSE, diagnosis.causes[0].cause), []).append(run)
    return runs


def _learned(prometheus: Prometheus, runs: Mapping[Topic, object], now: float) -> set[tuple[str, str, str]]:
    """Return (cluster, node, check) of all that fails by what was learned of the node alone."""
    checks = sorted(topic.name for topic in runs if topic.kind == CHECK)
    if not checks:
        return set()
    query = f'pyrometer_check_reason_info{{{matching("check", checks)}, severity="learned"}}'
    labels = [series.labels for series in prometheus.instant(query, now)]
    return {(names.get("cluster", ""), names.get("node", ""), names.get("check", "")) for names in labels}


def _of_rule(rule: Rule, runs: Mapping[Topic, Sequence[Run]], firing: Sequence[Incident]) -> Iterator[Finding]:
    if rule.finding == ALERT:
        yield from _of_alert_rule(rule, runs, firing)
        return
    for topic in sorted(filter(lambda topic: topic.kind == rule.finding and rule.matches(topic.name), runs), key=str):
        for run in runs[topic]:
            if not run.holds or run.lasted < rule.seconds:
                continue
            if rule.finding == CHECK:
                incident_id = _incident_of(firing, run.cluster, run.node)
                yield Finding(run.cluster, run.node, rule, f"check {topic.name} failed", incident_id, topic, run.since)
            else:
                yield from _of_cause(rule, topic, run, firing)


def _of_alert_rule(rule: Rule, runs: Mapping[Topic, Sequence[Run]], firing: Sequence[Incident]) -> Iterator[Finding]:
    """Yield the alerts that are open here and that Prometheus says fire; of one on a check, the check fails now."""
    latest = {(topic, run.cluster, run.node): run for topic, of_topic in runs.items() for run in of_topic if run.holds}
    members = [(incident, alert) for incident in firing for alert in incident.members if alert.firing]
    for incident, alert in members:
        cluster, node, check = (alert.labels.get(label, "") for label in ("cluster", "node", "check"))
        run = latest.get((Topic(ALERT, alert.name), cluster, node))
        topic = Topic(CHECK, check) if check else Topic(ALERT, alert.name)
        shown = latest.get((topic, cluster, node))
        if rule.matches(alert.name) and run is not None and run.lasted >= rule.seconds and shown is not None:
            what = f"{alert.name} {part_of(alert.labels)}".strip()
            yield Finding(cluster, node, rule, what, incident.id, topic, shown.since)


def _of_cause(rule: Rule, topic: Topic, run: Run, firing: Sequence[Incident]) -> Iterator[Finding]:
    for incident in firing:
        diagnosis = incident.diagnosis
        if diagnosis is None or not diagnosis.names_cause or incident.cluster != run.cluster:
            continue
        first = diagnosis.causes[0]
        is_sure = first.confidence in CONFIDENCES[CONFIDENCES.index(rule.confidence) :]
        if is_sure and first.cause == topic.name and (first.labels or {}).get("node") == run.node:
            what = f"{first.part}: {first.cause}"
            yield Finding(run.cluster, run.node, rule, what, incident.id, topic, run.since)


def _incident_of(firing: Sequence[Incident], cluster: str, node: str) -> str:
    """Return the incident that has an alert of this node, a widespread one last; empty without one."""
    concerned = [
        incident
        for incident in firing
        if incident.cluster == cluster and any(alert.labels.get("node") == node for alert in incident.members)
    ]
    return min(concerned, key=lambda incident: len(incident.members)).id if concerned else ""


def _worst(answer: Sequence[Series], label: str, other: str) -> dict[tuple[str, str], float]:
    """Return the newest value by a label and one that may be missing; the smallest of several targets': the worst."""
    worst: dict[tuple[str, str], float] = {}
    for series in answer:
        if series.points and label in series.labels:
            key, value = (series.labels[label], series.labels.get(other, "")), series.points[-1][1]
            worst[key] = min(value, worst.get(key, value))
    return worst
