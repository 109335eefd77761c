"""Labels that others add to series lose nothing: those of scrapes, of a group, of a ruler, of a namespace.

Users report rules that stay silent, and records that fail, once such a label is there (prometheus-operator 6775 and
thanos 7357 on GitHub). Every operator is read: series of two origins are matched by labels that it names. And tests of
the rules are played again with the labels added: the same alerts, once each.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tools.board_lint.origins import SCRAPED, origins, unnamed

from pyrometer_dashboards.promql import Expression, parse
from pyrometer_simulator.stack.promtool import groups_of, one_by_one

ROOT = Path(__file__).resolve().parents[2]
GROUPS = [group for path in sorted((ROOT / "alert_rules").glob("*.rules.yaml")) for group in groups_of(path)]
RULES = [rule for group in GROUPS for rule in group["rules"]]
# Series of targets under a record's name as well (upgrade.rules.yaml): each is matched with its like.
RECORDED_BY = {
    rule["record"]: group["name"]
    for group in GROUPS
    for rule in group["rules"]
    if "record" in rule and ":" in rule["record"]
}
# They keep all labels of a target's own series: UFM's counters under our names, and those of
# exporters until 0.2.0 with the job; node:pyrometer_map:given is a rule of the site's own.
COPIES = ("ufm:pyrometer_nic_", "pyrometer_train_", "node:pyrometer_map:place")
Promtool = Callable[..., None]


def _name(rule: dict[str, Any]) -> str:
    return str(rule.get("alert") or rule.get("record"))


@pytest.mark.parametrize("rule", RULES, ids=_name)
def test_a_rule_names_the_labels_of_a_match_and_passes_none_of_a_scrape_on(rule: dict[str, Any]) -> None:
    tree = parse(rule["expr"])
    assert list(unnamed(tree, RECORDED_BY)) == []
    passed = SCRAPED in origins(tree, RECORDED_BY)
    assert not passed or str(rule.get("record")).startswith(COPIES)


def _named(node: Expression, under: tuple[Expression, ...]) -> bool:
    """Return whether a series of others is asked for with its node, or joined with a node that we know."""
    joined = (part.parts[1] for part in under if "of_cluster" in part.extra.get("group_left", ""))
    return ("node", "!=", "") in node.matchers or any(part.name == "node:pyrometer_node:alias" for part in joined)


@pytest.mark.parametrize("rule", RULES, ids=_name)
def test_a_rule_over_others_series_says_nothing_without_a_node(rule: dict[str, Any]) -> None:
    """Take node_exporter's, kube-state-metrics' and dcgm-exporter's: anybody may have them beside ours."""
    parts = [(node, under) for node, under in parse(rule["expr"]).walk() if node.kind == "selector"]
    others = [(node, under) for node, under in parts if re.match("node_|kube_|DCGM_", node.name)]
    assert [node.name for node, under in others if not _named(node, under)] == []


@pytest.mark.parametrize(
    ("expr", "faults"),
    [
        ("max by (cluster) (up) or a:b:c", ["or between g1 and named"]),
        ("max by (cluster) (up) - a:b:c > 0", ["- between g1 and named"]),
        ("up unless a:b:c", ["unless between g1 and scraped"]),
        ("a:b:c / d:e:f", ["/ between g1 and g2"]),
        ("(a:b:c or on (cluster) max by (cluster) (up)) and a:b:c", ["and between g1 and named"]),
        ("topk by (cluster) (1, a:b:c) and max by (cluster) (up)", ["and between g1 and named"]),
        ('label_replace(a:b:c, "x", "", "", "") * ALERTS', ["* between ALERTS and g1"]),
        ("max by (cluster) (up) or on (cluster) a:b:c", []),
        ("max by (cluster) (up) > on (cluster) 2 * a:b:c", []),
        ("max by (cluster) (up) and min by (cluster) (up)", []),
        ("max by (cluster, node) (max_over_time(up[5m]) - min_over_time(up[5m]))", []),
        ("a:b:c - a:b:c offset 5m", []),
        ("a:b:c > 1 - time()", []),
    ],
)
def test_a_match_of_two_origins_is_reported(expr: str, faults: list[str]) -> None:
    assert list(unnamed(parse(expr), {"a:b:c": "g1", "d:e:f": "g2"})) == faults


TESTS = ROOT / "alert_rules/tests"
# One of each kind that was silent or failed; `make test-scale` plays all but copies (ufm, upgrade).
QUICK = {
    "nic": "NicLinkFlapping fires: the third loss",
    "gpu": "GpuXidCritical fires: it came while the node was away",
    "host": "HostOutOfMemory fires: on a node that nobody has seen",
    "train_died": "TrainRunDied fires: as a warning for a small run",
    "maintenance": "NodeInMaintenance",
}
PLAYS = [
    *(pytest.param(TESTS / f"{name}.test.yaml", words, id=name) for name, words in QUICK.items()),
    *(pytest.param(path, "", id=path.name, marks=pytest.mark.e2e) for path in sorted(TESTS.glob("[!u]*.test.yaml"))),
]
OF_SCRAPES = {"endpoint": "metrics", "service": "s", "pod": "exporter-x", "container": "c", "prometheus_replica": "a"}


def _labelled(folder: Path, words: str) -> Iterator[Path]:
    """Yield the tests whose names begin so, with the labels of an operator, of a group and of a namespace."""
    more = {"team": "gpu", "namespace": "pyrometer"}
    for path in sorted(folder.glob("*.rules.yaml")):
        groups = json.loads(path.read_text(encoding="utf-8"))["groups"]
        path.write_text(json.dumps({"groups": [group | {"labels": more} for group in groups]}), encoding="utf-8")
    for path in sorted(folder.glob("*.test.yaml")):
        file = json.loads(path.read_text(encoding="utf-8"))
        (test,) = file["tests"]
        if not test["name"].startswith(words):
            continue
        for series in test["input_series"]:
            series["series"] = _with(series["series"], OF_SCRAPES)
        for expected in (alert for check in test.get("alert_rule_test", []) for alert in check["exp_alerts"]):
            expected["exp_labels"] |= more
        for check in test.get("promql_expr_test", []):
            for label in more:
                check["expr"] = f'label_replace({check["expr"]}, "{label}", "", "", "")'
        path.write_text(json.dumps(file), encoding="utf-8")
        yield path


def _with(series: str, labels: Mapping[str, str]) -> str:
    """Return a series with those labels that it does not have."""
    more = ", ".join(f'{name}="{value}"' for name, value in labels.items() if f"{name}=" not in series)
    return f"{series[:-1]}, {more}}}" if series.endswith("}") else f"{series}{{{more}}}"


@pytest.mark.parametrize(("path", "words"), PLAYS)
def test_labels_that_others_add_change_no_alert(promtool: Promtool, path: Path, words: str, tmp_path: Path) -> None:
    list(one_by_one(path, tmp_path))
    played = list(_labelled(tmp_path, words))
    assert played
    promtool("test", "rules", *played)
