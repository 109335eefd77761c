"""Two clusters whose nodes and runs have the same names, in one Prometheus: no rule takes one for the other.

Every expression of a rule, and every question of an alert's text, is read: each sum, maximum and join must keep the
label of the cluster. (Rules played on two equal clusters would hide a maximum of two equal values.)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tools.board_lint.clusters import mixing, unchosen

from pyrometer_dashboards.promql import parse
from pyrometer_simulator.stack.promtool import rules_of

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "alert_rules"


@cache
def _rules() -> tuple[dict[str, Any], ...]:
    return tuple(rules_of(sorted(RULES.glob("*.rules.yaml"))))


@pytest.mark.parametrize("rule", _rules(), ids=lambda rule: rule.get("alert") or rule.get("record"))
def test_a_rule_keeps_the_cluster(rule: dict[str, Any]) -> None:
    # A node that one cluster has is known by its name alone, to those who name no cluster.
    by_name = ["and on (node)", "count by (node)"] if rule.get("record") == "node:pyrometer_node:alias" else []
    assert list(mixing(parse(rule["expr"]))) == by_name
    assert "cluster" not in rule.get("labels", {})


@pytest.mark.parametrize(
    ("expr", "fault"),
    [
        ("sum(up)", "sum of everything"),
        ("max by (node) (up) == 0", "max by (node)"),
        ("count without (cluster, node) (up)", "count without (cluster, node)"),
        ("topk(3, up)", "topk of everything"),
        ("up and on (node) node_boot_time_seconds", "and on (node)"),
        ("up * on () group_left () count by (cluster) (up)", "* on ()"),
        ("up unless ignoring (cluster) ALERTS", "unless ignoring (cluster)"),
        ('absent(up{job="node"})', "absent()"),
        ("up / scalar(count by (cluster) (up))", "scalar()"),
        ('label_replace(up, "cluster", "all", "", "")', "label_replace() of the cluster"),
    ],
)
def test_an_expression_that_mixes_clusters_is_reported(expr: str, fault: str) -> None:
    assert fault in list(mixing(parse(expr)))


@pytest.mark.parametrize(
    "expr",
    [
        "max by (cluster, node) (up) == 0",
        "count without (node) (up)",
        'sum(up{cluster="c1"}) / on () count(up{cluster="c1"})',
        "up unless on (cluster, node) node:pyrometer_node_maintenance:active",
        "up * on (cluster, what) group_left () what:pyrometer_gpu_deviation:step",
    ],
)
def test_an_expression_that_keeps_clusters_apart_is_not_reported(expr: str) -> None:
    assert list(mixing(parse(expr))) == []


def _asked(rule: dict[str, Any]) -> Iterator[str]:
    """Yield what an alert's texts ask Prometheus for, with a value in place of each verb of printf."""
    for text in rule.get("annotations", {}).values():
        for asked in re.findall(r'"((?:[^"\\]|\\.)*)"', text):
            if re.search(r"cluster=|\w+\{|:pyrometer|^DCGM|^pyrometer", asked):
                filled = asked.replace("%q", '"x"').replace("%s", '{cluster="x"}').replace('\\"', '"')
                yield re.sub(r"%\.?\d*[dfv]", "1", filled)


ASKING = [rule for rule in _rules() if any(_asked(rule))]


@pytest.mark.parametrize("rule", ASKING, ids=lambda rule: rule["alert"])
def test_the_texts_of_an_alert_ask_about_its_own_cluster(rule: dict[str, Any]) -> None:
    others = [node.name for text in _asked(rule) for node in unchosen(parse(text))]
    # The service itself, which looks after several clusters, and has their label from none.
    assert [name for name in others if not name.startswith("pyrometer_alerting_")] == []


def test_many_alerts_ask_prometheus_for_their_texts() -> None:
    assert len(ASKING) > 30
