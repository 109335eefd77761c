"""Find the nodes that a rule is about now, by a failed check, an alert or a cause that Prometheus confirms.

Nothing follows from silence: a Prometheus that does not answer raises, a series that is not there finds no node.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from pyrometer_alerting.model.incident import CONFIDENCES, Incident, part_of
from pyrometer_alerting.policy.rules import ALERT, CHECK, Policy, Rule
from pyrometer_kit.prometheus import Prometheus, Series

# A diagnosis is renewed each half minute while its run is slow; one that is older was not confirmed.
FRESH_SECONDS = 180.0
# The look-back of a check: it runs every five minutes and is served at each scrape in between.
LEAST_CHECK_SECONDS = 60.0


@dataclass(frozen=True)
class Finding:
    """A node that a rule is about, what was found on it, and the incident that has it, if one does."""

    cluster: str
    node: str
    rule: Rule
    what: str
    incident_id: str = ""


def findings(policy: Policy, prometheus: Prometheus, incidents: Sequence[Incident], now: float) -> list[Finding]:
    """Return one finding of each node, of the first rule that holds for it, in the order of the rules.

    Raises:
        PrometheusError: it did not answer, so nothing is known.
    """
    firing = [incident for incident in incidents if incident.firing and not incident.joined_into]
    by_node: dict[tuple[str, str], Finding] = {}
    for rule in policy.rules:
        for finding in _of_rule(rule, prometheus, firing, now):
            if finding.cluster in policy.clusters or rule.do == "webhook":
                by_node.setdefault((finding.cluster, finding.node), finding)
    return list(by_node.values())


def passed(
    prometheus: Prometheus, cluster: str, node: str, *, tests: Sequence[str], since: float, now: float
) -> tuple[bool, str]:
    """Return whether all these active tests passed after `since` and no check fails, and what is missing.

    Raises:
        PrometheusError: it did not answer, so nothing is known.
    """
    where = f"cluster={json.dumps(cluster)}, node={json.dumps(node)}"
    at = _by(prometheus.instant(f"pyrometer_active_test_timestamp_seconds{{{where}}}", now), "test", "peer")
    verdict = _by(prometheus.instant(f"pyrometer_active_test_ok{{{where}}}", now), "test", "peer")
    checks = _by(prometheus.instant(f"pyrometer_check_ok{{{where}}}", now), "check", "")
    new = [key for key, when in at.items() if when > since]
    late = [test for test in tests if test not in {name for name, _ in new}]
    # A test of two nodes has a run with each of its peers: all that came since are to have passed.
    failed = [test for test in tests if any(key[0] == test and verdict.get(key) != 1.0 for key in new)]
    broken = sorted(check for (check, _), value in checks.items() if value != 1.0)
    if late or failed:
        return False, f"not run since: {', '.join(late) or 'none'}; not passed: {', '.join(failed) or 'none'}"
    if not checks:
        return False, "no result of the node's checks is known"
    return not broken, f"failed checks: {', '.join(broken)}" if broken else ""


def _of_rule(rule: Rule, prometheus: Prometheus, firing: Sequence[Incident], now: float) -> list[Finding]:
    if rule.finding == CHECK:
        return _failed_checks(rule, prometheus, firing, now)
    return _alerts(rule, prometheus, firing, now) if rule.finding == ALERT else _causes(rule, prometheus, firing, now)


def _failed_checks(rule: Rule, prometheus: Prometheus, firing: Sequence[Incident], now: float) -> list[Finding]:
    selector = f"pyrometer_check_ok{{check=~{json.dumps(rule.pattern)}}}"
    held = f"{max(rule.seconds, LEAST_CHECK_SECONDS):.0f}s"
    # Failed now, failed at the beginning, and never good in between: neither a gap nor a first look is a failure.
    query = (
        f"max by (cluster, node, check) ({selector}) == 0"
        f" and max by (cluster, node, check) ({selector} offset {held}) == 0"
        f" and max by (cluster, node, check) (max_over_time({selector}[{held}])) == 0"
    )
    failed = []
    for series in sorted(prometheus.instant(query, now), key=lambda series: series.labels.get("check", "")):
        cluster, node = series.labels.get("cluster", ""), series.labels.get("node", "")
        what = f"check {series.labels.get('check', '')} failed"
        if cluster and node:
            failed.append(Finding(cluster, node, rule, what, _incident_of(firing, cluster, node)))
    return failed


def _alerts(rule: Rule, prometheus: Prometheus, firing: Sequence[Incident], now: float) -> list[Finding]:
    names = {alert.name for incident in firing for alert in incident.members if alert.firing}
    wanted = sorted(name for name in names if rule.matches(name))
    if not wanted:
        return []
    confirmed = _firing_at(prometheus, wanted, now)
    return [
        Finding(cluster, node, rule, f"{alert.name} {part_of(alert.labels)}".strip(), incident.id)
        for incident in firing
        for alert in incident.members
        if alert.firing and alert.name in wanted and now - alert.starts_at >= rule.seconds
        if (cluster := alert.labels.get("cluster", "")) and (node := alert.labels.get("node", ""))
        if (alert.name, cluster, node) in confirmed
    ]


def _firing_at(prometheus: Prometheus, alerts: Sequence[str], now: float) -> set[tuple[str, str, str]]:
    """Return (alert, cluster, node) of all that Prometheus itself says fire."""
    selector = f'ALERTS{{alertname=~{json.dumps("|".join(alerts))}, alertstate="firing"}}'
    answer = prometheus.instant(f"group by (alertname, cluster, node) ({selector})", now)
    labels = [series.labels for series in answer]
    return {(names["alertname"], names.get("cluster", ""), names.get("node", "")) for names in labels}


def _causes(rule: Rule, prometheus: Prometheus, firing: Sequence[Incident], now: float) -> list[Finding]:
    """Return the nodes of causes that come first, are as sure as the rule wants, and were confirmed a moment ago."""
    blamed = []
    for incident in firing:
        diagnosis = incident.diagnosis
        if diagnosis is None or not diagnosis.names_cause or diagnosis.missing or now - diagnosis.at > FRESH_SECONDS:
            continue
        first, since = diagnosis.causes[0], diagnosis.concluded_at or diagnosis.at
        node = (first.labels or {}).get("node", "")
        sure = first.confidence in CONFIDENCES[CONFIDENCES.index(rule.confidence) :]
        if node and sure and rule.matches(first.cause) and now - since >= rule.seconds:
            blamed.append(Finding(incident.cluster, node, rule, f"{first.part}: {first.cause}", incident.id))
    if not blamed:
        return []
    answer = prometheus.instant('group by (cluster, node) (up{node!=""} == 1)', now)
    reporting = {(series.labels.get("cluster", ""), series.labels["node"]) for series in answer}
    return [finding for finding in blamed if (finding.cluster, finding.node) in reporting]


def _incident_of(firing: Sequence[Incident], cluster: str, node: str) -> str:
    """Return the incident that has an alert of this node, a widespread one last; empty without one."""
    concerned = [
        incident
        for incident in firing
        if incident.cluster == cluster and any(alert.labels.get("node") == node for alert in incident.members)
    ]
    return min(concerned, key=lambda incident: len(incident.members)).id if concerned else ""


def _by(answer: Sequence[Series], label: str, other: str) -> dict[tuple[str, str], float]:
    """Return the newest value by a label and one that may be missing; the smallest of several targets': the worst."""
    worst: dict[tuple[str, str], float] = {}
    for series in answer:
        if series.points and label in series.labels:
            key, value = (series.labels[label], series.labels.get(other, "")), series.points[-1][1]
            worst[key] = min(value, worst.get(key, value))
    return worst
