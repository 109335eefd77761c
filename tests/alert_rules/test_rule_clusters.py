"""Two clusters whose nodes and runs have the same names, in one Prometheus: no rule takes one for the other.

Each promtool test of a rule runs with a second cluster that is the same in all but its label: all alerts and
records of the first are expected of the second as well, once each and with the same figures. A rule whose sums, medians
and joins mix the two has other figures, or fails on two series where it expects one. A maximum of two equal values
hides it: hence the expressions are read, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from tools.board_lint.clusters import mixing, unchosen

from pyrometer_dashboards.promql import parse
from pyrometer_simulator.stack import Stack
from pyrometer_simulator.stack.promtool import objections, one_by_one, rules_of

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "alert_rules"
TEST_FILES = sorted((RULES / "tests").glob("*.test.yaml"))
TWIN = "-twin"  # after the cluster's name
_CLUSTER = re.compile(r'cluster="([^"]*)"')


class _Loader(yaml.SafeLoader):
    """Reads `0x60` as promtool does: a text, sixty times 0, and no number."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in known if not (first == "0" and tag == "tag:yaml.org,2002:int")]
    for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile("0$"), ["0"])


@cache
def _rules() -> tuple[dict[str, Any], ...]:
    return tuple(rules_of(sorted(RULES.glob("*.rules.yaml"))))


@cache
def _constants() -> frozenset[str]:
    """Return the records that are made of no series: the same steps and digits for every cluster."""
    constants = {rule["record"] for rule in _rules() if "record" in rule and not list(unchosen(parse(rule["expr"])))}
    assert constants == {"what:pyrometer_gpu_deviation:step", "digit:pyrometer_digit:value"}
    return frozenset(constants)


@pytest.mark.parametrize("rule", _rules(), ids=lambda rule: rule.get("alert") or rule.get("record"))
def test_a_rule_keeps_the_cluster(rule: dict[str, Any]) -> None:
    assert list(mixing(parse(rule["expr"]), _constants())) == []
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
        "up * on (what) group_left () what:pyrometer_gpu_deviation:step",
    ],
)
def test_an_expression_that_keeps_clusters_apart_is_not_reported(expr: str) -> None:
    assert list(mixing(parse(expr), _constants())) == []


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


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.load(path.read_text(encoding="utf-8"), _Loader)  # noqa: S506 - a safe loader
    return found


def twin(file: dict[str, Any]) -> dict[str, Any]:
    """Return a promtool test with a second cluster beside each, the same in all but the name."""
    return _with_absolute_paths(file, [_with_twin_cluster(test) for test in file["tests"]])


def _with_absolute_paths(file: dict[str, Any], tests: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a promtool test of other tests, with absolute paths of its rules."""
    files = [(RULES / "tests" / each).resolve() for each in file["rule_files"]]
    return {**file, "rule_files": [str(each) for each in files], "tests": tests}


def _with_twin_cluster(test: dict[str, Any]) -> dict[str, Any]:
    twice = {**test, "input_series": _with_twins(test.get("input_series", []), _twin_text("series"))}
    if "alert_rule_test" in test:
        twice["alert_rule_test"] = [
            {**each, "exp_alerts": _with_twins(each.get("exp_alerts") or [], _twin_alert)}
            for each in test["alert_rule_test"]
        ]
    if "promql_expr_test" in test:
        twice["promql_expr_test"] = [_question(each) for each in test["promql_expr_test"] if _keeps(each["expr"])]
    return twice


def _keeps(expr: str) -> bool:
    """Return whether a test's question keeps the cluster: else it is about the test's own figures, not the rules'."""
    return not list(mixing(parse(expr)))


def _question(asked: dict[str, Any]) -> dict[str, Any]:
    several = list(unchosen(parse(asked["expr"])))
    return (
        {**asked, "exp_samples": _with_twins(asked.get("exp_samples") or [], _twin_text("labels"))}
        if several
        else asked
    )


def _with_twins(
    entries: list[dict[str, Any]], twin_of: Callable[[dict[str, Any]], dict[str, Any] | None]
) -> list[dict[str, Any]]:
    return [*entries, *filter(None, map(twin_of, entries))]


def _twin_text(key: str) -> Callable[[dict[str, Any]], dict[str, Any] | None]:
    def twin_of(entry: dict[str, Any]) -> dict[str, Any] | None:
        named = _CLUSTER.sub(rf'cluster="\1{TWIN}"', entry[key])
        return None if named == entry[key] else {**entry, key: named}

    return twin_of


def _twin_alert(alert: dict[str, Any]) -> dict[str, Any] | None:
    labels = alert["exp_labels"]
    return {**alert, "exp_labels": {**labels, "cluster": labels["cluster"] + TWIN}} if "cluster" in labels else None


def sums_over_clusters(file: dict[str, Any]) -> dict[str, Any]:
    """Return a promtool test that asks only what `twin` leaves out: questions that sum over clusters."""
    asked = [
        (test, [each for each in test.get("promql_expr_test", []) if not _keeps(each["expr"])])
        for test in file["tests"]
    ]
    tests = [{**test, "alert_rule_test": [], "promql_expr_test": questions} for test, questions in asked if questions]
    return _with_absolute_paths(file, tests)


@pytest.mark.parametrize("path", TEST_FILES, ids=lambda path: path.name)
def test_the_rules_pass_their_tests_for_both_clusters(stack: Stack, path: Path, tmp_path: Path) -> None:
    """Run each test with its second cluster; a rule that is right for both clusters is right for one."""
    file = _read(path)
    complaint = _complaint(stack, twin(file), tmp_path / "both")
    complaint += _complaint(stack, sums_over_clusters(file), tmp_path / "sums")
    if complaint:
        alone = objections(stack.promtool, "test", "rules", path)
        pytest.fail(alone or f"only a second cluster with the same names breaks it:\n{complaint}", pytrace=False)


def _complaint(stack: Stack, file: dict[str, Any], folder: Path) -> str:
    (folder / "each").mkdir(parents=True)
    written = folder / "whole.test.yaml"
    written.write_text(yaml.safe_dump(file), encoding="utf-8")
    return objections(stack.promtool, "test", "rules", *one_by_one(written, folder / "each")) if file["tests"] else ""


def test_a_rule_that_mixes_them_is_noticed(stack: Stack, tmp_path: Path) -> None:
    rules = (RULES / "cluster.rules.yaml").read_text(encoding="utf-8")
    useful = '(increase(pyrometer_run_seconds_total{state="useful"}[1d]))'
    whole = f"sum by (cluster, run) {useful}"
    mixed = f"(0 * {whole} + on (run) group_left () sum by (run) {useful})"
    assert whole in rules
    planted = tmp_path / "cluster.rules.yaml"
    planted.write_text(rules.replace(whole, mixed), encoding="utf-8")
    copy = twin(_read(RULES / "tests/cluster_day.test.yaml"))
    copy["rule_files"] = [str(planted)]
    assert "FAILED" in _complaint(stack, copy, tmp_path / "planted")
