"""The alert rules as Prometheus itself sees them, and the three places of each alert: rule, test and runbook."""

import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.families import labels_by_metric

from pyrometer_simulator.incidents.rules import seconds
from pyrometer_simulator.stack.promtool import evaluation_order, groups_of, one_by_one, rules_of, that_answer
from pyrometer_simulator.yaml_loader import LOADER

ROOT = Path(__file__).resolve().parents[2]
RULE_FILES = sorted((ROOT / "alert_rules").glob("*.rules.yaml"))
TEST_FILES = sorted((ROOT / "alert_rules/tests").glob("*.test.yaml"))
Promtool = Callable[..., None]
RUNBOOKS = (ROOT / "docs/alerts.md").read_text(encoding="utf-8")

# Metrics of rules that are not ours: those of Prometheus' node exporter and of Prometheus itself.
OTHERS_METRICS = re.compile(
    r"""
    up
    | node_filesystem_(avail_bytes|size_bytes|readonly) | node_memory_Mem(Total|Available)_bytes
    | node_pressure_(cpu_waiting|memory_stalled|io_stalled)_seconds_total
    | node_disk_(io_time_seconds|(read|written)_bytes)_total
    | node_(bonding_(active|slaves)|network_info|infiniband_physical_state_id)
    | node_infiniband_(link_downed_total|state_id|symbol_error_total|rate_bytes_per_second)
    | node_(network_carrier_down_changes_total|(boot_)?time_seconds)
    # A rule of the site's own, where names of nodes have no numbers (docs/dashboards.md).
    | node:pyrometer_map:given
    """,
    re.VERBOSE,
)


@cache
def _rules() -> list[dict[str, Any]]:
    return rules_of(RULE_FILES)


ALERTS = {rule["alert"]: rule for rule in _rules() if "alert" in rule}
RECORDS = {rule["record"] for rule in _rules() if "record" in rule}


@cache
def _checks() -> tuple[tuple[str, str, list[Any]], ...]:
    """(name of the test, alert, expected alerts) of every check in the promtool tests, read once."""
    return tuple(_read_checks())


def _read_checks() -> Iterator[tuple[str, str, list[Any]]]:
    for path in TEST_FILES:
        for test in yaml.load(path.read_text(encoding="utf-8"), LOADER)["tests"]:  # noqa: S506  a safe one
            for check in test.get("alert_rule_test", []):
                yield test["name"], check["alertname"], check["exp_alerts"]


def test_percentages_are_written_alike() -> None:
    """`60.9 %` everywhere: humanizePercentage makes `60.88%` of it."""
    assert [path.name for path in RULE_FILES if "humanizePercentage" in path.read_text()] == []


@pytest.mark.parametrize("path", RULE_FILES, ids=lambda path: path.name)
def test_promtool_accepts_the_rules(promtool: Promtool, path: Path) -> None:
    promtool("check", "rules", "--lint=all", "--lint-fatal", path)


@pytest.mark.parametrize("path", TEST_FILES, ids=lambda path: path.name)
def test_the_rules_pass_their_tests(promtool: Promtool, path: Path, tmp_path: Path) -> None:
    promtool("test", "rules", *one_by_one(path, tmp_path))


def test_a_rule_that_another_asks_over_is_evaluated_and_one_that_nobody_asks_is_not() -> None:
    rules = [
        {"record": "a:b:c", "expr": "sum(x)"},
        {"record": "d", "expr": 'max({job="a"})'},
        {"alert": "High", "expr": "a:b:c > 1", "annotations": {"description": '{{ query "e" }}'}},
        {"alert": "Low", "expr": "a:b:c < 1"},
        {"record": "e", "expr": "vector(1)"},
    ]
    groups = [{"name": "first", "rules": rules[:2]}, {"name": "second", "rules": rules[2:]}]

    def left(*questions: str) -> list[str]:
        return [
            rule.get("record", rule.get("alert")) for each in that_answer(groups, questions) for rule in each["rules"]
        ]

    assert left("High") == ["a:b:c", "High", "e"]
    assert left("rate(d[5m]) or x") == ["d"]
    assert left('ALERTS{alertname="Low"}') == ["a:b:c", "High", "Low", "e"]
    assert left('{__name__=~"a.*"}') == ["a:b:c", "d", "High", "Low", "e"]
    assert that_answer(groups, ["y"]) == []


def test_all_groups_are_evaluated_in_a_stated_order() -> None:
    groups: list[dict[str, Any]] = [{"name": name, "rules": []} for name in ("first", "second", "third")]
    assert evaluation_order([], groups) == ["first", "second", "third"]
    assert evaluation_order(["third", "left out"], groups) == ["third", "first", "second"]


def test_each_rule_file_has_its_tests_and_each_test_file_is_of_a_rule_file() -> None:
    rules = {path.name.split(".")[0] for path in RULE_FILES}
    tests = {path.name.split(".")[0] for path in TEST_FILES}
    assert sorted(rules - tests) == []
    # A long one has several: train_stalled.test.yaml, train_stalled_waits.test.yaml.
    assert [name for name in sorted(tests - rules) if not any(name.startswith(f"{rule}_") for rule in rules)] == []


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_says_how_bad_it_is_and_whom_it_concerns(name: str) -> None:
    labels = ALERTS[name]["labels"]
    assert labels["severity"] in ({"none"} if name == "Watchdog" else {"critical", "warning", "info"})
    assert labels["component"] in {"gpu", "nic", "train", "host", "stack"}


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_has_a_summary_a_measured_value_and_a_runbook(name: str) -> None:
    annotations = ALERTS[name]["annotations"]
    assert annotations.keys() - {"user"} == {"summary", "description", "runbook"}
    assert "$value" in annotations["description"]
    assert annotations["runbook"] == f"docs/alerts.md#{name.lower()}"
    assert f"\n## {name}\n" in RUNBOOKS, "write its runbook in docs/alerts.md"


@pytest.mark.parametrize("name", ALERTS)
def test_a_runbook_says_what_how_and_what_to_do(name: str) -> None:
    section = RUNBOOKS.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    assert [part for part in ("Means", "Measured", "Do", "Against it") if f"**{part}.**" not in section] == []


def test_no_runbook_is_left_over() -> None:
    assert re.findall(r"^## (\w+)$", RUNBOOKS, re.MULTILINE) == [*dict.fromkeys(_in_order_of_docs())]


def _in_order_of_docs() -> list[str]:
    return sorted(ALERTS, key=lambda name: RUNBOOKS.find(f"\n## {name}\n"))


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_is_seen_firing_and_silent_and_resolved(name: str) -> None:
    checks = [(test, expected) for test, alert, expected in _checks() if alert == name]
    assert any("fires" in test and expected for test, expected in checks), (
        "add a case to alert_rules/tests whose name says that it fires"
    )
    assert any("must not fire" in test for test, _ in checks), "add a case whose name says that it must not fire"
    assert any("resolves" in test and expected for test, expected in checks), (
        "add a case whose name says that it resolves"
    )
    # Watchdog is the one that never resolves and never stays silent.
    silent = [expected for test, expected in checks if "must not fire" in test and not expected]
    assert silent or name == "Watchdog"


def test_a_firing_alert_is_compared_with_all_its_labels_and_annotations() -> None:
    for test, _, expected in _checks():
        for alert in expected:
            assert alert["exp_labels"].keys() >= {"severity", "component"}, test
            assert alert["exp_annotations"].keys() - {"user"} == {"summary", "description", "runbook"}, test


@pytest.mark.parametrize("rule", _rules(), ids=lambda rule: rule.get("alert") or rule.get("record"))
def test_a_rule_uses_only_metrics_of_the_contract(rule: dict[str, Any]) -> None:
    text = "\n".join([rule["expr"], *rule.get("annotations", {}).values()])
    text = re.sub(r"#.*|docs/\S+", "", text)
    used = set(re.findall(r"\b(?:\w+:)*(?:pyrometer|DCGM_FI|node)_\w+(?::\w+)?|\bup\b(?=\{)", text))
    unknown = {name for name in used if not OTHERS_METRICS.fullmatch(name)} - RECORDS - labels_by_metric().keys()
    assert unknown == set(), "no collector has such a family, and no rule records it: a misspelled name?"


def test_training_alerts_carry_the_run_and_not_the_node_where_it_was_read() -> None:
    run_level = [test for test, alert, _ in _checks() if alert in {"TrainMfuDropped", "TrainBatchPointsLost"}]
    assert run_level
    for _, alert, expected in _checks():
        if alert in {"TrainMfuDropped", "TrainBatchPointsLost"}:
            labels = [firing["exp_labels"].keys() - {"job_id"} for firing in expected]
            assert all(found == {"severity", "component", "cluster", "run"} for found in labels)


# test_pint.py runs pint (cloudflare/pint) where it is installed; its most useful checks are here as well, since its Go
# module can't be had everywhere.
LONGEST_SCRAPE_INTERVAL = 30


def _name(rule: dict[str, Any]) -> str:
    return str(rule.get("alert") or rule.get("record"))


def _code(rule: dict[str, Any]) -> str:
    return re.sub(r"#.*", "", rule["expr"])


@pytest.mark.parametrize("rule", _rules(), ids=lambda rule: rule.get("alert") or rule.get("record"))
def test_a_rate_looks_at_four_scrapes_of_the_longest_usual_interval(rule: dict[str, Any]) -> None:
    """As pint's promql/rate."""
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    windows = re.findall(r"\b(?:rate|increase|irate)\(.*?\[(\d+)([smhd])\]", _code(rule), re.DOTALL)
    assert [w for w, unit in windows if int(w) * units[unit] < 2 * LONGEST_SCRAPE_INTERVAL] == []


def test_a_record_of_every_five_minutes_is_read_with_a_window_by_rules_that_come_more_often() -> None:
    """Prometheus looks back five minutes from an evaluation; VictoriaMetrics, at a new series, one evaluation of it."""
    groups = [group for path in RULE_FILES for group in groups_of(path)]
    seldom = {
        rule["record"]: _interval(group)
        for group in groups
        if _interval(group) >= 300
        for rule in group["rules"]
        if "record" in rule
    }
    assert "config:pyrometer_train_batch_mfu_ratio:expected" in seldom
    for group in groups:
        for rule in group["rules"]:
            for record, every in seldom.items():
                if every > _interval(group):
                    bare = re.search(rf"(?<![\w:]){record}(?![\w:])(?!(\{{[^}}]*\}})?\[)", rule["expr"])
                    assert bare is None, f"{rule.get('record') or rule.get('alert')} reads {record} without a window"


def _interval(group: dict[str, Any]) -> float:
    """Return the seconds between two evaluations, which every group states: Prometheus' default is a minute."""
    return seconds(group["interval"])


@pytest.mark.parametrize("name", ALERTS)
def test_an_annotation_uses_only_labels_that_the_alert_has(name: str) -> None:
    """As pint's alerts/template: a label that was aggregated away is an empty word in the message."""
    rule = ALERTS[name]
    by = {label for group in re.findall(r"\bby \(([^)]*)\)", _code(rule)) for label in re.split(r"[,\s]+", group)}
    copied = set(re.findall(r'label_(?:replace|join)\(.*?,\s*"(\w+)"', _code(rule), re.DOTALL))
    used = {label for text in rule["annotations"].values() for label in re.findall(r"\$labels\.(\w+)", text)}
    records = {word for word in re.findall(r"\w+(?::\w+)+", _code(rule)) if word in RECORDS}
    assert records or used <= by | copied | {"severity", "component"}


def test_no_rule_is_written_twice() -> None:
    """As pint's rule/duplicate."""
    seen = [(_name(rule), str(rule.get("labels")), " ".join(_code(rule).split())) for rule in _rules()]
    assert [each for each in seen if seen.count(each) > 1] == []


@pytest.mark.parametrize("rule", _rules(), ids=lambda rule: rule.get("alert") or rule.get("record"))
def test_a_regular_expression_is_one(rule: dict[str, Any]) -> None:
    """As pint's promql/regexp: what has no operator is compared as text."""
    assert [text for text in re.findall(r'=~"([^"]*)"', _code(rule)) if re.fullmatch(r"[\w-]*", text)] == []


# Those of a run (somebody trains on that node all the same); HostDiskFull is critical of the monitoring host alone,
# which is no GPU node.
TOLD_IN_MAINTENANCE = re.compile("Train.*|Nccl.*|HostDiskFull")


@pytest.mark.parametrize("rule", [each for each in _rules() if "alert" in each], ids=lambda rule: rule["alert"])
def test_an_alert_of_a_node_honours_maintenance(rule: dict[str, Any]) -> None:
    if "$labels.node" not in rule["annotations"]["summary"] or TOLD_IN_MAINTENANCE.fullmatch(rule["alert"]):
        return
    silenced = {
        each["record"] for each in _rules() if "record" in each and "pyrometer_node_maintenance" in each["expr"]
    }
    while (
        more := {
            each["record"] for each in _rules() if "record" in each and any(name in each["expr"] for name in silenced)
        }
        - silenced
    ):
        silenced |= more
    assert any(name in rule["expr"] for name in silenced), (
        "silence it in maintenance: unless on (cluster, node) node:pyrometer_node_maintenance:active"
    )
