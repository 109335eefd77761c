"""Beside somebody's Alertmanager: what its own inhibitions and routes do to our alerts and to the heartbeat."""

from __future__ import annotations

from typing import Any

import pytest
from alerting_fakes import Bench, raw_alert
from alerting_upstream import Upstream, fault

from pyrometer_alerting.incidents.alertmanager_payload import parse

# kube-prometheus-stack's default rules and null route, as Alertmanager shows them, with our route.
STACK = """
route:
  receiver: "null"
  routes:
  - receiver: "null"
    matchers: ['alertname="Watchdog"']
  - receiver: pyrometer
    matchers: ['component=~"gpu|host|nic|stack|train"']
inhibit_rules:
- {source_matchers: [severity="critical"], target_matchers: ['severity=~"warning|info"'], equal: [namespace, alertname]}
- {source_matchers: [alertname="InfoInhibitor"], target_matchers: [severity="info"], equal: [namespace]}
- {source_matchers: [alertname="NodeDown"], target_matchers: [component="gpu"], equal: [cluster, node]}
receivers: [{name: "null"}, {name: pyrometer, webhook_configs: [{url: <secret>}]}]
"""


@pytest.fixture
def upstream(bench: Bench) -> Upstream:
    found = Upstream(bench)
    found.first.text = STACK
    bench.receive(raw_alert("Other", severity="info"), receiver="pyrometer")
    return found


def hides(upstream: Upstream, source: dict[str, Any], *targets: dict[str, Any]) -> None:
    """Have both Alertmanagers inhibit the targets while the source fires."""
    for alertmanager in (upstream.first, upstream.second):
        alertmanager.knows(source)
        sources = alertmanager.known
        alertmanager.knows(*targets, inhibited_by=(str(source["fingerprint"]),))
        alertmanager.known = [*sources, *alertmanager.known]
    upstream.fires(source, *targets)


@pytest.mark.parametrize("more", [{}, {"team": "gpu", "site": "north"}], ids=["as ours are", "with labels of the site"])
def test_a_warning_that_a_critical_alert_of_another_node_hides_is_told_as_hidden(
    upstream: Upstream, more: dict[str, str]
) -> None:
    upstream.first.text = STACK.replace("[namespace, alertname]", "[namespace, alertname, team, site]")
    critical = raw_alert("GpuThrottledThermal", node="gpu-003", gpu="1", severity="critical", component="gpu", **more)
    warning = raw_alert("GpuThrottledThermal", node="gpu-117", gpu="6", severity="warning", component="gpu", **more)
    upstream.bench.receive(critical, receiver="pyrometer")
    hides(upstream, critical, warning)
    upstream.steps(60)
    assert "gpu-117 GPU 6" in upstream.text()
    assert "hidden in Alertmanager by GpuThrottledThermal of gpu-003 GPU 1" in upstream.text()
    upstream.knows()
    upstream.fires()
    upstream.steps(150)
    assert all("Resolved" in message["text"] for message in upstream.bench.messages)


@pytest.mark.parametrize(("source", "target"), [
    (("NodeDown", {"node": "gpu-117"}), {"component": "gpu", "severity": "warning"}),
    (("GpuThrottledThermal", {"node": "x", "severity": "critical"}), {"component": "database", "severity": "warning"}),
], ids=["a rule that joins them by the node", "an alert that is not ours"])  # fmt: skip
def test_what_people_hide_on_purpose_stays_hidden(
    upstream: Upstream, source: tuple[str, dict[str, str]], target: dict[str, str]
) -> None:
    hides(
        upstream, raw_alert(source[0], **source[1]), raw_alert("GpuThrottledThermal", node="gpu-117", gpu="6", **target)
    )
    upstream.steps(600)
    assert "GPU 6" not in upstream.text()


def test_an_info_alert_that_info_inhibitor_hides_is_an_incident_of_the_page(upstream: Upstream) -> None:
    info = raw_alert("TrainGarbageCollection", run="r", severity="info", component="train")
    hides(upstream, raw_alert("InfoInhibitor", severity="none", namespace=""), info)
    upstream.steps(60)
    with upstream.bench.store.transaction() as tx:
        notes = {incident.alertname: incident.note for incident in tx.recent_incidents(float("inf"))}
    assert notes["TrainGarbageCollection"] == "hidden in Alertmanager by InfoInhibitor"
    assert upstream.bench.messages == []


@pytest.mark.parametrize("labels", [
    {"name": "InfoInhibitor", "severity": "warning"}, {"name": "DeadMansSwitch", "severity": "none"},
])  # fmt: skip
def test_alerts_for_programs_alone_are_no_incident(upstream: Upstream, labels: dict[str, str]) -> None:
    upstream.bench.receive(raw_alert(labels["name"], severity=labels["severity"]), receiver="pyrometer")
    upstream.bench.deliver(5)
    assert upstream.bench.messages == []


@pytest.mark.parametrize("heard", [True, False], ids=["after the first", "which never arrived"])
@pytest.mark.parametrize(("receiver", "by", "obstacle"), [
    ("null", "", 'Route 1 (alertname="Watchdog") leads it to null: put the route with component=~"gpu|host|nic|stack'),
    ("pyrometer", "InfoInhibitor", 'InfoInhibitor inhibits it (inhibit_rules: alertname="InfoInhibitor" hides'),
])  # fmt: skip
def test_what_takes_the_heartbeat_is_named(
    upstream: Upstream, receiver: str, by: str, obstacle: str, heard: bool
) -> None:
    severity = "info" if by else "none"
    began = upstream.bench.clock.time
    heartbeat = raw_alert("Watchdog", severity=severity, component="stack", starts_at=began)
    inhibitor = raw_alert("InfoInhibitor", severity="none", namespace="")
    theirs = raw_alert("Watchdog", severity="none", component="", starts_at=began)
    if heard:
        upstream.bench.receive(heartbeat, receiver="pyrometer")
    for alertmanager in (upstream.first, upstream.second):
        alertmanager.knows(theirs, inhibitor, receiver="null")
        others = alertmanager.known
        alertmanager.knows(heartbeat, receiver=receiver, inhibited_by=(inhibitor["fingerprint"],) if by else ())
        alertmanager.known = [*others, *alertmanager.known]
    upstream.steps(150)
    assert upstream.bench.messages == []
    upstream.steps(120)
    (message,) = upstream.bench.messages
    assert "Alertmanager has the Watchdog of c1 and does not send it here" in message["text"]
    assert obstacle in upstream.text().replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&").replace(
        "\u223c", "~"
    )
    upstream.bench.receive(heartbeat, groupKey="again", receiver="pyrometer")
    upstream.steps(30)
    upstream.bench.receive(heartbeat, groupKey="and again", receiver="pyrometer")
    upstream.steps(30)
    assert "Resolved" in upstream.bench.messages[0]["text"]


def test_a_heartbeat_that_never_arrived_and_is_gone_is_forgotten(upstream: Upstream) -> None:
    heartbeat = raw_alert("Watchdog", severity="none", component="stack", starts_at=upstream.bench.clock.time)
    for alertmanager in (upstream.first, upstream.second):
        alertmanager.knows(heartbeat, receiver="null")
    upstream.steps(300)
    upstream.knows()
    upstream.steps(60)
    assert "Resolved" in upstream.bench.messages[0]["text"]


def test_grafanas_own_alerting_is_understood_in_its_place() -> None:
    """Post a delivery in the form that Grafana 12 documents for its webhook contact point."""
    body = b"""{"receiver": "pyrometer", "status": "firing", "orgId": 1, "version": "1", "truncatedAlerts": 0,
    "groupKey": "{}/{}:{}", "title": "[FIRING:1]", "state": "alerting", "message": "", "alerts": [{
    "status": "firing", "labels": {"alertname": "GpuLost", "grafana_folder": "pyrometer", "node": "n1", "gpu": "3"},
    "annotations": {}, "startsAt": "2026-10-12T09:51:03.157076+02:00", "endsAt": "0001-01-01T00:00:00Z",
    "generatorURL": "https://g/1", "fingerprint": "c6eadffa33fcdf37", "silenceURL": "https://g/2", "dashboardURL": "",
    "panelURL": "", "values": {"B": 44.2, "C": 1}}]}"""
    (alert,) = parse(body).alerts
    assert (alert.name, alert.firing, alert.fingerprint) == ("GpuLost", True, "c6eadffa33fcdf37")


def test_a_fault_of_ours_beside_their_rules_is_as_before(upstream: Upstream) -> None:
    upstream.bench.receive(fault(upstream), receiver="pyrometer")
    upstream.knows(fault(upstream))
    upstream.steps(60)
    assert "hidden" not in upstream.text()
