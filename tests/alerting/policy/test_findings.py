"""A rule finds an alert, check or cause that Prometheus confirms now, and nothing else."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from alerting_fakes import FakePrometheus, body, raw_alert, training_incident

from pyrometer_alerting.incidents.alertmanager_payload import parse
from pyrometer_alerting.incidents.lifecycle import fold
from pyrometer_alerting.model.incident import Cause, Diagnosis, Incident
from pyrometer_alerting.policy.findings import FRESH_SECONDS, findings, passed
from pyrometer_alerting.policy.rules import Policy, Rule, SlurmSettings
from pyrometer_kit.prometheus import PrometheusError, Series

NOW = time.time()


def policy(*rules: Rule) -> Policy:
    return Policy("on", clusters={"c1": SlurmSettings()}, rules=rules)


def lost(started: float = NOW - 600, cluster: str = "c1") -> Incident:
    raw = raw_alert(node="gpu-042", gpu="3", starts_at=started, cluster=cluster)
    change = fold(None, parse(body(raw)).alerts, 0, NOW)
    assert change is not None
    return change.incident


def series(**labels: str) -> Series:
    return Series({"cluster": "c1", **labels}, ((NOW, 1.0),))


GONE = Rule("alert", "GpuLost", 300.0, "drain")


def test_an_alert_counts_once_prometheus_says_that_it_fires_and_it_fires_long_enough() -> None:
    prometheus = FakePrometheus()
    assert findings(policy(GONE), prometheus, [lost()], NOW) == []
    prometheus.on("ALERTS", [series(alertname="GpuLost", node="gpu-042")])
    (found,) = findings(policy(GONE), prometheus, [lost()], NOW)
    assert (found.node, found.what) == ("gpu-042", "GpuLost gpu-042 GPU 3")
    assert findings(policy(GONE), prometheus, [lost(NOW - 60)], NOW) == []


def test_the_same_name_in_a_cluster_that_the_policy_does_not_know_is_nothing() -> None:
    prometheus = FakePrometheus()
    prometheus.on("ALERTS", [Series({"cluster": "c2", "alertname": "GpuLost", "node": "gpu-042"}, ((NOW, 1.0),))])
    assert findings(policy(GONE), prometheus, [lost(cluster="c2")], NOW) == []


def test_a_prometheus_that_does_not_answer_is_no_finding_but_an_error() -> None:
    prometheus = FakePrometheus()
    prometheus.on("ALERTS", PrometheusError("away"))
    with pytest.raises(PrometheusError):
        findings(policy(GONE), prometheus, [lost()], NOW)


def test_the_first_rule_that_holds_for_a_node_wins() -> None:
    prometheus = FakePrometheus()
    prometheus.on("ALERTS", [series(alertname="GpuLost", node="gpu-042")])
    prometheus.on("pyrometer_check_ok", [series(node="gpu-042", check="gpu_count"), series(node="n2", check="acs")])
    found = findings(policy(GONE, Rule("check", ".+", 0.0, "ask")), prometheus, [lost()], NOW)
    assert [(each.node, each.rule.do) for each in found] == [("gpu-042", "drain"), ("n2", "ask")]


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
    prometheus = FakePrometheus()
    incident = training_incident(diagnosis=diagnosis)
    prometheus.on("up", [Series({"cluster": incident.cluster, "node": "n1"}, ((NOW, 1.0),))])
    rules = Policy(
        "on", clusters={incident.cluster: SlurmSettings()}, rules=(Rule("cause", "throttling", 0.0, "drain"),)
    )
    assert len(findings(rules, prometheus, [incident], NOW)) == expected
    prometheus.answers.clear()  # the node does not report
    assert findings(rules, prometheus, [incident], NOW) == []


@pytest.mark.parametrize(
    ("later", "expected"),
    [
        ({"gpu-007": 1.0}, (True, "")),
        ({"gpu-007": 1.0, "gpu-008": 0.0}, (False, "not run since: none; not passed: nccl_pair")),
        ({}, (False, "not run since: nccl_pair; not passed: none")),
    ],
)
def test_a_test_of_two_nodes_counts_by_its_runs_since_the_drain(
    later: dict[str, float], expected: tuple[bool, str]
) -> None:
    prometheus = FakePrometheus()
    runs = {"gpu-006": (0.0, NOW - 900), **{peer: (ok, NOW - 60) for peer, ok in later.items()}}
    pair = {"cluster": "c1", "node": "gpu-042", "test": "nccl_pair"}
    prometheus.on("active_test_ok", [Series({**pair, "peer": peer}, ((NOW, ok),)) for peer, (ok, _) in runs.items()])
    prometheus.on(
        "active_test_timestamp", [Series({**pair, "peer": peer}, ((NOW, at),)) for peer, (_, at) in runs.items()]
    )
    prometheus.on("pyrometer_check_ok", [series(node="gpu-042", check="nvlinks")])
    assert passed(prometheus, "c1", "gpu-042", tests=["nccl_pair"], since=NOW - 600, now=NOW) == expected
