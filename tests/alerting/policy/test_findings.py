"""A rule finds an alert, check or cause that has held long enough and holds now by Prometheus, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import pytest
from alerting_fakes import FakePrometheus, body, raw_alert, training_incident

from pyrometer_alerting.incidents.alertmanager_payload import parse
from pyrometer_alerting.incidents.lifecycle import fold
from pyrometer_alerting.model.incident import Cause, Diagnosis, Incident
from pyrometer_alerting.policy.findings import FRESH_SECONDS, Finding, look, missing_for_return
from pyrometer_alerting.policy.rules import Policy, Rule, SlurmSettings
from pyrometer_alerting.policy.schedulers import Claim, NodeState
from pyrometer_kit.prometheus import PrometheusError, Series

NOW = float(int(time.time()))


class Facts(FakePrometheus):
    def now(self) -> float:
        return NOW

    def many(self, pattern: str, one: Series) -> None:
        """Let one more series answer what this pattern matches."""
        for known, answer in self.answers:
            if known == pattern and isinstance(answer, list):
                answer.append(one)
                return
        self.on(pattern, [one])


def policy(*rules: Rule) -> Policy:
    return Policy("on", clusters={"c1": SlurmSettings()}, rules=rules)


def findings(chosen: Policy, prometheus: Facts, incidents: Sequence[Incident]) -> Sequence[Finding]:
    return look(chosen, prometheus, incidents, NOW).found


def lost(started: float = NOW - 600, cluster: str = "c1", **labels: str) -> Incident:
    raw = raw_alert(node="gpu-042", gpu="3", starts_at=started, cluster=cluster)
    raw["labels"] |= labels
    change = fold(None, parse(body(raw)).alerts, 0, NOW)
    assert change is not None
    return change.incident


def series(*points: tuple[float, float], **labels: str) -> Series:
    return Series({"cluster": "c1", **labels}, points or ((NOW, 1.0),))


def firing(minutes: float, **labels: str) -> Series:
    """Return an alert that has been firing (2) for so many minutes, and was pending (1) for five before."""
    steps = range(int(-2 * minutes - 10), 1)
    points = [(NOW + 30 * n, 2.0 if 30 * n >= -60 * minutes else 1.0) for n in steps]
    return series(*points, **{"alertname": "GpuLost", "node": "gpu-042", **labels})


def looks(*ages_and_results: tuple[float, bool | None], node: str = "n2", check: str = "acs") -> Series:
    """Return a check that was run so many minutes ago: True is good, None is unknown; as Prometheus is asked for it."""
    points = []
    for n in range(-80, 1):
        at = NOW + 30 * n
        done = [(NOW - 60 * age, good) for age, good in ages_and_results if NOW - 60 * age <= at]
        if done and done[-1][1] is not None:
            points.append((at, done[-1][0] * (-1 if done[-1][1] else 1)))
    return Series({"cluster": "c1", "node": node, "check": check}, tuple(points))


CHECKS = "min_over_time|last_run|group by .check."  # which fail, on which nodes, and by which looks
FIRES = "group by .alertname, cluster, node, run, .* .ALERTS.alertstate"  # what is asked of posted alerts
GONE = Rule("alert", "GpuLost", 300.0, "drain")
FIVE = Rule("check", ".+", 300.0, "drain")


@pytest.mark.parametrize(("minutes", "expected"), [(5, ["gpu-042"]), (4, []), (0, [])])
def test_an_alert_counts_if_prometheus_says_that_it_fires_long_enough_whatever_the_poster_says(
    minutes: float, expected: list[str]
) -> None:
    prometheus = Facts()
    assert findings(policy(GONE), prometheus, [lost(NOW - 3600)]) == []
    prometheus.on("ALERTS", [firing(minutes)])
    found = findings(policy(GONE), prometheus, [lost(NOW - 3600)])
    assert [each.node for each in found] == expected
    assert {(each.what, str(each.topic)) for each in found} <= {("GpuLost gpu-042 GPU 3", "alert GpuLost")}


def test_the_same_name_in_a_cluster_that_the_policy_does_not_know_is_nothing() -> None:
    prometheus = Facts()
    prometheus.on("ALERTS", [firing(9, cluster="c2")])
    assert findings(policy(GONE), prometheus, [lost(cluster="c2")]) == []


def test_a_prometheus_that_does_not_answer_is_no_finding_but_an_error() -> None:
    prometheus = Facts()
    prometheus.on("ALERTS", PrometheusError("away"))
    with pytest.raises(PrometheusError):
        findings(policy(GONE), prometheus, [lost()])


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ([(10, True), (5, False), (0, False)], 1),
        ([(10, True), (4.9, False), (0.2, False)], 1),  # intervals vary by a tenth
        ([(10, True), (5, False)], 0),  # one look, however often it was scraped
        ([(5, False), (4, False), (3, False), (2, False), (1, False)], 0),  # four minutes
        ([(5, False), (4, False), (3, False), (2, False), (1, False), (0, False)], 1),
        ([(10, False), (5, True), (0, False)], 0),
        ([(10, False), (5, False), (0, True)], 0),
        ([(10, False), (5, None), (0, False)], 1),
        ([(10, False), (5, False), (0, None)], 0),  # nobody knows by now
        ([(30, False), (25, None), (0, False)], 0),  # nobody knew for long
    ],
)
def test_a_check_counts_by_as_many_looks_as_its_time_needs(
    results: list[tuple[float, bool | None]], expected: int
) -> None:
    prometheus = Facts()
    prometheus.on(CHECKS, [looks(*results)])
    assert len(findings(policy(FIVE), prometheus, [])) == expected


def test_what_was_learned_may_warn_and_never_drain() -> None:
    prometheus = Facts()
    prometheus.on(CHECKS, [looks((10, False), (0, False))])
    prometheus.on("learned", [series(node="n2", check="acs")])
    assert [len(findings(policy(replace(FIVE, do=do)), prometheus, [])) for do in ("drain", "webhook", "ask")] == [
        0,
        0,
        1,
    ]


@pytest.mark.parametrize(("last", "expected"), [(False, ["check acs"]), (None, []), (True, [])])
def test_an_alert_on_a_check_counts_while_the_check_fails(last: bool | None, expected: list[str]) -> None:
    prometheus = Facts()
    prometheus.on(FIRES, [firing(9, alertname="NodeCheckFailed", check="acs")])
    prometheus.on("ALERTS", [firing(9, alertname="NodeCheckFailed")])
    prometheus.on(CHECKS, [looks((5, False), (0, last), node="gpu-042")])
    rule = Rule("alert", "NodeCheckFailed", 0.0, "drain")
    found = findings(policy(rule), prometheus, [lost(alertname="NodeCheckFailed", check="acs")])
    assert [str(each.topic) for each in found] == expected


def test_the_first_rule_that_holds_for_a_node_wins() -> None:
    prometheus = Facts()
    prometheus.on("ALERTS", [firing(9)])
    prometheus.on(
        CHECKS,
        [looks((9, False), (0, False), node=node) for node in ("gpu-042", "n2")],
    )
    found = findings(policy(GONE, Rule("check", ".+", 0.0, "ask")), prometheus, [lost()])
    assert [(each.node, each.rule.do) for each in found] == [("gpu-042", "drain"), ("n2", "ask")]


def test_names_of_posted_alerts_that_prometheus_does_not_have_are_in_no_query() -> None:
    prometheus = Facts()
    prometheus.on("ALERTS", [firing(9)])
    forged = [lost(alertname=name, check="x") for name in ('a"}[', "\ufffd\U0001f525", *map(str, range(99)))]
    found = findings(policy(Rule("alert", ".+", 300.0, "drain")), prometheus, [*forged, lost()])
    assert [each.node for each in found] == ["gpu-042"]
    assert [name for query in prometheus.queries for name in ('a\\"', "\U0001f525", "98") if name in query] == []


def test_a_strange_name_costs_no_query() -> None:
    prometheus = Facts()
    prometheus.on(CHECKS, [looks((9, False), (0, False), node='n(1" x')])
    assert [each.node for each in findings(policy(FIVE), prometheus, [])] == ['n(1" x']
    assert r'node=~"n\\(1\" x"' in prometheus.queries[2]


HOT = Cause("n1 GPU 3", "thermal throttling", labels={"node": "n1"}, confidence="high")


@pytest.mark.parametrize(
    ("diagnosis", "expected"),
    [
        (Diagnosis(NOW, (HOT,)), 1),
        (Diagnosis(NOW, (replace(HOT, confidence="medium"),)), 0),
        (Diagnosis(NOW - FRESH_SECONDS - 1, (HOT,)), 0),
        (Diagnosis(NOW, (HOT,), missing=("no data from n7",)), 0),
        (Diagnosis(NOW, (replace(HOT, cause=""),)), 0),
        (Diagnosis(NOW, (replace(HOT, labels={}),)), 0),
        (None, 0),
    ],
)
def test_a_cause_counts_if_it_is_sure_fresh_and_nothing_is_missing(diagnosis: Diagnosis | None, expected: int) -> None:
    prometheus = Facts()
    incident = training_incident(diagnosis=diagnosis)
    prometheus.on(FIRES, [series(alertname="TrainMfuDropped", run="llama-70b")])
    prometheus.on("up", [Series({"cluster": incident.cluster, "node": "n1"}, ((NOW, 1.0),))])
    rules = Policy(
        "on", clusters={incident.cluster: SlurmSettings()}, rules=(Rule("cause", "throttling", 0.0, "drain"),)
    )
    assert len(findings(rules, prometheus, [incident])) == expected
    for unknown in ("up", FIRES):  # the node does not report; somebody posted an alert that Prometheus does not have
        kept, prometheus.answers = prometheus.answers, [each for each in prometheus.answers if each[0] != unknown]
        assert findings(rules, prometheus, [incident]) == []
        prometheus.answers = kept


PASSED = {
    "active_test_ok": 1.0,
    "active_test_timestamp": NOW - 60,
    "check_ok nvlinks": 1.0,
    "last_run nvlinks": NOW - 60,
}


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, ""),
        ({"active_test_timestamp": NOW - 900}, "test not run since: nccl_pair"),
        ({"active_test_timestamp": NOW + 4 * 3600}, "test not run since: nccl_pair"),  # the node's clock was set
        ({"last_run nvlinks": NOW + 4 * 3600}, "check not run since, or unknown: nvlinks"),
        ({"active_test_ok": 0.0}, "test not passed: nccl_pair"),
        ({"check_ok nvlinks": 0.0}, "check failed: nvlinks"),
        ({"check_ok nvlinks": 0.0, "reason warning nvlinks": 1.0}, "check failed: nvlinks"),  # it was drained for it
        ({"last_run nvlinks": NOW - 900}, "check not run since, or unknown: nvlinks"),
        ({"check_ok acs": 1.0, "check_ok nvlinks": None}, "check not run since, or unknown: nvlinks"),
        ({"check_ok acs": 0.0}, "check failed: acs"),
        ({"check_ok acs": 0.0, "reason critical acs": 1.0}, "check failed: acs"),
        ({"check_ok acs": 0.0, "reason warning acs": 1.0}, ""),
        ({"check_ok nvme": 0.0, "reason learned nvme": 1.0}, ""),  # a fact that has changed since
        ({"check_ok nvlinks": None}, "no result of the node's checks is known"),
        ({"ALERTS GpuLost": 1.0}, "alert fires: GpuLost"),
    ],
)
def test_a_node_waits_for_its_tests_its_critical_checks_and_what_it_was_drained_for(
    facts: dict[str, float | None], expected: str
) -> None:
    prometheus = Facts()
    for name, value in (PASSED | facts).items():
        metric, _, rest = name.partition(" ")
        severity, _, check = rest.rpartition(" ")
        names = {"check": check, "severity": severity, "test": "nccl_pair", "alertname": check}
        if value is not None:
            prometheus.many(metric, series((NOW, value), node="gpu-042", **names))
    state = NodeState("gpu-042", in_service=False, held=True, claim=Claim(("nvlinks", "GpuLost"), NOW - 600))
    found = missing_for_return(prometheus, "c1", state, tests=["nccl_pair"], since=NOW - 600, now=NOW)
    assert found == expected


@pytest.mark.parametrize(
    ("later", "expected"),
    [
        ({"gpu-007": 1.0}, ""),
        ({"gpu-007": 1.0, "gpu-008": 0.0}, "test not passed: nccl_pair"),
        ({}, "test not run since: nccl_pair"),
    ],
)
def test_a_test_of_two_nodes_counts_by_its_runs_since_the_drain(later: dict[str, float], expected: str) -> None:
    prometheus = Facts()
    runs = {"gpu-006": (0.0, NOW - 900), **{peer: (ok, NOW - 60) for peer, ok in later.items()}}
    for peer, (ok, at) in runs.items():
        prometheus.many("active_test_ok", series((NOW, ok), test="nccl_pair", peer=peer))
        prometheus.many("active_test_timestamp", series((NOW, at), test="nccl_pair", peer=peer))
    prometheus.on("pyrometer_check_ok", [series(node="gpu-042", check="nvlinks")])
    state = NodeState("gpu-042", in_service=False, held=True)
    found = missing_for_return(prometheus, "c1", state, tests=["nccl_pair"], since=NOW - 600, now=NOW)
    assert found == expected
