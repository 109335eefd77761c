"""Alertmanager's configuration as we read it decides as Alertmanager does: routes in today's and in older notation."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from pyrometer_kit.alertmanager_config import parse
from pyrometer_simulator.stack import Stack

TEXT = r"""
route:
  receiver: default
  routes:
  - receiver: pager
    match: {severity: critical}
    match_re: {team: db|web}
    continue: true
  - matchers: ['component=~"gpu|nic"', 'kind!~"test.*"']
    receiver: pyrometer
    routes:
    - {matchers: ['{alertname="Watch\"dog", site != "x,y"}'], receiver: heartbeat}
    - {matchers: [cluster=""]}
  - {matchers: ['alertname =~ "W.*"'], receiver: "null"}
receivers:
- name: default
- {name: pager, webhook_configs: [{url: "http://pager"}]}
- {name: pyrometer, webhook_configs: [{url: "http://pyrometer"}], slack_configs: []}
- {name: heartbeat}
- {name: "null"}
inhibit_rules:
- {source_match: {severity: critical}, target_match_re: {severity: warning|info}, equal: [namespace, alertname]}
- {source_matchers: [alertname="Down"], target_matchers: [alertname!="Down"], equal: [node]}
"""
ALERTS = [
    {"alertname": "A"},
    {"alertname": "A", "severity": "critical", "team": "web"},
    {"alertname": "A", "severity": "critical", "team": "webs"},
    {"alertname": "A", "severity": "critical", "team": "db", "component": "nic", "cluster": "c"},
    {"alertname": 'Watch"dog', "component": "gpu", "cluster": "c"},
    {"alertname": 'Watch"dog', "component": "gpu", "cluster": "c", "site": "x,y"},
    {"alertname": "Watchdog", "component": "gpu"},
    {"alertname": "Watchdog", "component": "gpu", "kind": "tests"},
]


@pytest.mark.parametrize("labels", ALERTS, ids=lambda labels: ",".join(labels.values()))
def test_an_alert_takes_the_routes_that_amtool_says(stack: Stack, tmp_path: Path, labels: dict[str, str]) -> None:
    (tmp_path / "am.yml").write_text(TEXT, encoding="utf-8")
    given = [f"{name}={json.dumps(value)}" for name, value in labels.items()]
    command = [*stack.amtool_command, "config", "routes", "test", f"--config.file={tmp_path / 'am.yml'}", *given]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    assert ",".join(route.receiver for route in parse(TEXT).routes(labels)) == said.strip()


def test_a_route_is_named_by_its_place_and_matchers() -> None:
    configuration = parse(TEXT)
    assert [str(route) for route in configuration.routes(ALERTS[4])] == [
        'route 2.1 (alertname="Watch"dog", site!="x,y")'
    ]
    assert [str(route) for route in configuration.routes(ALERTS[0])] == ["the default route"]
    assert configuration.has_webhook(["null", "pager"])
    assert not configuration.has_webhook(["null", "heartbeat", "gone"])


@pytest.mark.parametrize(("target", "source", "rule"), [
    ({"alertname": "A", "severity": "info"}, {"alertname": "A", "severity": "critical", "node": "other"},
     'severity="critical" hides severity=~"warning|info", equal: namespace, alertname'),
    ({"alertname": "A", "severity": "info", "namespace": "n"}, {"alertname": "A", "severity": "critical"}, "None"),
    ({"alertname": "A", "node": "n"}, {"alertname": "Down", "node": "n"},
     'alertname="Down" hides alertname!="Down", equal: node'),
    ({"alertname": "A", "node": "n"}, {"alertname": "Down", "node": "m"}, "None"),
])  # fmt: skip
def test_an_inhibition_is_named_where_it_mutes(target: dict[str, str], source: dict[str, str], rule: str) -> None:
    assert str(parse(TEXT).inhibition(target, source)) == rule


@pytest.mark.parametrize("text", ["", "a: [", "slack_configs: []", "route: 3", "route: {}\ninhibit_rules: 3"])
def test_what_is_no_configuration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no configuration of Alertmanager"):
        parse(text)


def test_a_regular_expression_that_can_not_be_read_matches_nothing() -> None:
    text = "route: {receiver: a, routes: [{receiver: b, matchers: ['x=~\"(\"']}]}"
    assert [route.receiver for route in parse(text).routes({"x": "("})] == ["a"]
