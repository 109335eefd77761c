"""Each check finds its own fault, planted into a good board, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from tools.board_lint import run, schema, shape
from tools.board_lint.finding import Finding, LintContext

from pyrometer_dashboards.main import rendered

Board = dict[str, Any]
BOARDS: dict[str, Board] = {name: json.loads(text) for name, text in rendered().items()}
CONTEXT = run.load_context(Path(__file__).parents[3], BOARDS, {})


def panel(board: Board, kind: str) -> dict[str, Any]:
    """The first panel of a kind."""
    return next(each for each in board["panels"] if each["type"] == kind)


def defaults(board: Board, kind: str) -> dict[str, Any]:
    found: dict[str, Any] = panel(board, kind)["fieldConfig"]["defaults"]
    return found


def query(expr: str, **flags: object) -> Callable[[Board], None]:
    """A fault: the first panel of lines asks this."""

    def plant(board: Board) -> None:
        panel(board, "timeseries")["targets"][0].update(expr=expr, **flags)

    return plant


def setting(kind: str, key: str, value: object = True) -> Callable[[Board], None]:
    """A fault: a setting of all fields of the first panel of a kind; a dot goes one deeper."""

    def plant(board: Board) -> None:
        where = defaults(board, kind)
        *above, last = key.split(".")
        for step in above:
            where = where[step]
        where[last] = value

    return plant


def option(kind: str, key: str, value: object = True) -> Callable[[Board], None]:
    return lambda board: panel(board, kind)["options"].update({key: value})


def of_panel(kind: str, key: str, value: object) -> Callable[[Board], None]:
    return lambda board: panel(board, kind).update({key: value})


def of_board(key: str, value: object = True) -> Callable[[Board], None]:
    return lambda board: board.update({key: value})


def without(kind: str, key: str) -> Callable[[Board], None]:
    return lambda board: panel(board, kind).pop(key)


def linked(url: str) -> Callable[[Board], None]:
    return setting("timeseries", "links", [{"title": "there", "url": url}])


def overridden(kind: str, key: str, value: object) -> Callable[[Board], None]:
    """A fault: a setting of one field of the first panel of a kind."""
    one = {"matcher": {"id": "byName", "options": "Value"}, "properties": [{"id": key, "value": value}]}
    return lambda board: panel(board, kind)["fieldConfig"]["overrides"].append(one)


def mark(**changes: object) -> Callable[[Board], None]:
    """A fault: the board's last mark is this."""
    return lambda board: board["annotations"]["list"][-1].update(changes)


def folded(board: Board) -> None:
    """A fault: two panels of a folded row lie on the same place."""
    two = deepcopy(board["panels"][:2])
    for number, each in enumerate(two):
        each.update(id=900 + number, title=f"Folded {number}", gridPos={"x": 0, "y": 90, "w": 8, "h": 8})
    board["panels"].append({"type": "row", "title": "More", "collapsed": True, "panels": two})


def history(expr: str) -> Callable[[Board], None]:
    """A fault: the first panel of lines becomes a status history of this."""

    def plant(board: Board) -> None:
        one = panel(board, "timeseries")
        one["targets"] = [{**one["targets"][0], "expr": expr}]
        one.update(type="status-history", maxDataPoints=100)

    return plant


TIME = "${__url_time_range}"
# (the board that the fault is planted into, the fault, words of the finding)
FAULTS: dict[str, tuple[str, Callable[[Board], None], str]] = {
    # Queries.
    "syntax": ("overview", query("sum(up"), "no PromQL"),
    "a window that misses": ("overview", query('rate(x:y:z{cluster="$cluster"}[5m])'), "rate() over [5m]"),
    "a bare counter": ("node", query('pyrometer_kernel_events_total{node="$node"}'), "shown bare"),
    "a choice among lines": (
        "overview",
        query('topk(5, cluster:up:nodes{cluster="$cluster"})'),
        "every series that was ever",
    ),
    "a metric that isn't": ("overview", query("pyrometer_gpu_hotness:max"), "no exporter and no rule"),
    "all GPUs raw": ("overview", query("max(DCGM_FI_DEV_GPU_TEMP)"), "of the whole cluster"),
    "a calm zero": ("overview", query("count(cluster:up:nodes) or vector(0)"), "calm 0"),
    "plain batches": ("training-run", query("pyrometer_train_batch_loss"), "one per step of the panel"),
    "two clusters as one": (
        "overview",
        query("max by (cluster, run) (run:pyrometer_train_steps:rate1m)"),
        "of all clusters",
    ),
    "idle GPUs in a median": (
        "node",
        query('quantile(0.5, DCGM_FI_DEV_SM_CLOCK{cluster="$cluster", node="$node"})'),
        "idle GPUs are in the middle",
    ),
    "a mark that isn't PromQL": ("overview", mark(expr="changes(up"), "mark Deploys: no PromQL"),
    "a mark of all nodes": ("overview", mark(expr="pyrometer_exporter_build_info"), "mark Deploys: pyrometer_exporter"),
    "a mark of nothing": ("overview", mark(expr="pyrometer_gpu_hotness:max"), "mark Deploys: no exporter and no rule"),
    "a choice of nothing": (
        "overview",
        lambda board: board["templating"]["list"][1].update(query="label_values(pyrometer_gpu_hotness:max, cluster)"),
        "$cluster: no exporter and no rule has pyrometer_gpu_hotness:max",
    ),
    "several under =": ("overview", query('run:pyrometer_train_ranks:count{run="$run"}'), "choice of several"),
    "one under =~": ("node", query('cluster:up:nodes{cluster=~"$cluster"}'), "choice of one"),
    "a variable that isn't": ("overview", query('cluster:up:nodes{x="$missing"}'), "no variable $missing"),
    "instant and range": ("overview", query("cluster:up:nodes", instant=True), "instant and over a range"),
    # Faults that Grafana was seen to make of these.
    "no pluginVersion": ("gpu-matrix", without("xychart", "pluginVersion"), "no pluginVersion"),
    "timeline by thresholds": ("fabric", setting("state-timeline", "color.mode", "thresholds"), "disappear"),
    "insertNulls": ("overview", setting("timeseries", "custom.insertNulls", 60000), "bridges holes"),
    "spanNulls": ("overview", setting("timeseries", "custom.spanNulls"), "through every hole"),
    "zeros hidden": ("throttling", option("heatmap", "filterValues", {"le": 1e-9}), "cells of 0 are hidden"),
    "heatmap calculates": ("throttling", option("heatmap", "calculate"), "histogram over time"),
    "unit short": ("overview", setting("stat", "unit", "short"), "4.08 K"),
    "unit short of one field": ("overview", overridden("table", "unit", "short"), "4.08 K"),
    "a narrow column": ("overview", overridden("table", "custom.width", 42), "below 50 pixels"),
    "no unit": ("overview", setting("stat", "unit", ""), "no unit"),
    "no data healthy": ("overview", setting("stat", "mappings", []), "colour of healthy"),
    "no data as 0": ("overview", setting("stat", "noValue", "0"), "says nothing, or 0"),
    "points by thresholds": (
        "gpu-matrix",
        lambda board: defaults(board, "xychart")["mappings"].pop(),
        "is white",
    ),
    "no data not first": (
        "gpu-matrix",
        lambda board: defaults(board, "xychart")["mappings"].reverse(),
        "not the first mapping",
    ),
    "intervalFactor": ("overview", query("cluster:up:nodes", intervalFactor=2), "intervalFactor"),
    "100 points": ("overview", of_panel("timeseries", "maxDataPoints", 100), "most of the time"),
    "a counter less another": (
        "node",
        query("pyrometer_kernel_events_total - pyrometer_train_steps_total offset $__interval"),
        "is shown bare",
    ),
    "raw matrix": (
        "gpu-matrix",
        lambda board: board["panels"][-2]["targets"][0].update(expr='DCGM_FI_DEV_GPU_TEMP{node="$what"}'),
        "all their labels",
    ),
    "repeated by node": ("overview", of_panel("timeseries", "repeat", "node"), "512 queries"),
    "repeated row": (
        "overview",
        lambda board: board["panels"].append({"type": "row", "title": "Nodes", "repeat": "node", "panels": []}),
        "Nodes: it is repeated for each node",
    ),
    "status history": ("overview", of_panel("timeseries", "type", "status-history"), "refuses to draw"),
    "a history of all nodes": ("overview", history("node:pyrometer_check:ok"), "more than 128 rows"),
    "a history of 500 rows": ("overview", history("topk(500, node:pyrometer_check:ok)"), "more than 128 rows"),
    "straight bands": (
        "training-run",
        setting("timeseries", "custom.lineInterpolation", "linear"),
        "slow declines",
    ),
    "an old kind": ("overview", of_panel("timeseries", "type", "graph"), "panel of the kind graph"),
    "data source by name": ("overview", of_panel("timeseries", "datasource", "Prometheus"), "data source is"),
    "old thresholds": (
        "overview",
        lambda board: defaults(board, "stat")["thresholds"]["steps"][0].update(op="gt"),
        "old form",
    ),
    "thresholds that fall": (
        "overview",
        lambda board: defaults(board, "stat")["thresholds"].update(
            steps=[{"color": "text", "value": None}, {"color": "text", "value": 3}, {"color": "text", "value": 2}]
        ),
        "don't rise",
    ),
    "a threshold without a value": (
        "overview",
        lambda board: defaults(board, "stat")["thresholds"].update(
            steps=[{"color": "text", "value": None}, {"color": "text", "value": 3}, {"color": "text"}]
        ),
        "don't rise",
    ),
    # The board and its layout.
    "schema 12": ("overview", of_board("schemaVersion", 12), "schemaVersion 12"),
    "editable": ("overview", of_board("editable"), "editable"),
    "local time": ("overview", of_board("timezone", "browser"), "clock is the viewer's"),
    "refresh": ("overview", of_board("refresh", "5s"), "refreshes every 5s"),
    "no uid": ("overview", of_board("uid", None), "is no address"),
    "exported by hand": ("overview", of_board("id", 7), "id, version or __inputs"),
    "no tag": ("overview", of_board("tags", []), "no tag"),
    "no words": ("overview", of_board("description", ""), "no title or no description"),
    "overlap": ("overview", of_panel("timeseries", "gridPos", {"x": 0, "y": 0, "w": 8, "h": 8}), "lies over"),
    "overlap in a folded row": ("overview", folded, "Folded 0: it lies over 'Folded 1'"),
    "no place": ("overview", of_panel("timeseries", "gridPos", {"x": 0, "y": 0.5, "w": 8, "h": 8}), "no place"),
    "same id": (
        "overview",
        lambda board: [each.update(id=7) for each in board["panels"][:3]],
        "another panel has the same id",
    ),
    "no panel's title": ("overview", of_panel("timeseries", "title", ""), "no title"),
    "a long title": ("overview", of_panel("timeseries", "title", "How hot is it " * 5), "more than 60 characters"),
    "too wide": ("overview", of_panel("timeseries", "gridPos", {"x": 20, "y": 90, "w": 8, "h": 8}), "beyond"),
    "same title": ("overview", lambda board: panel(board, "table").update(title="Straggler"), "same title"),
    "no description": ("overview", of_panel("timeseries", "description", "see above"), "no description"),
    "asked once": (
        "overview",
        lambda board: board["templating"]["list"][1].update(refresh=1),
        "not asked again",
    ),
    "too much at once": (
        "overview",
        lambda board: board["panels"].extend(deepcopy(board["panels"][0]) for _ in range(20)),
        "panels at once",
    ),
    "too many queries": (
        "overview",
        lambda board: panel(board, "timeseries")["targets"].extend(
            {**panel(board, "timeseries")["targets"][0], "refId": f"Q{number}"} for number in range(60)
        ),
        "queries at once",
    ),
    # Links.
    "a board that isn't": ("overview", linked(f"/d/nowhere?{TIME}"), "no board nowhere"),
    "a variable that isn't there": ("overview", linked(f"/d/pyrometer-node?var-nodes=x&{TIME}"), "no variable nodes"),
    "time forgotten": ("overview", linked("/d/pyrometer-node?var-node=x"), "forgets the time"),
    "an invisible character": ("overview", linked(f"/d/pyrometer-node\ufeff?{TIME}"), "characters"),
    "a runbook that isn't": (
        "overview",
        of_panel("timeseries", "description", "What this shows is in docs/alerts.md#gpuunheardof, read it."),
        "no runbook gpuunheardof",
    ),
    "an unused variable": (
        "overview",
        lambda board: board["templating"]["list"].append({"name": "rack", "type": "query", "refresh": 2}),
        "nothing uses the variable rack",
    ),
    # Types and colours.
    "an unknown option": ("overview", option("stat", "colourMode", "value"), "'colourMode' was unexpected"),
    "a wrong type": ("overview", setting("timeseries", "custom.lineWidth", "thick"), "'thick' is not of type"),
    "a word for a number": ("overview", setting("timeseries", "decimals", "two"), "'two' is not of type"),
    "red and green": (
        "overview",
        lambda board: defaults(board, "stat")["thresholds"]["steps"][0].update(color="green"),
        "the colour green",
    ),
    "a mark in red": ("overview", mark(iconColor="red"), "mark Deploys: the colour red"),
}


def planted(name: str) -> list[str]:
    file, plant, _ = FAULTS[name]
    board = deepcopy(BOARDS[f"{file}.json"])
    plant(board)
    return [finding.line() for finding in run.findings({f"{file}.json": board}, CONTEXT)]


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found_and_the_line_says_where_and_the_way_out(name: str) -> None:
    file, _, words = FAULTS[name]
    found = [line for line in planted(name) if words in line]
    assert found, planted(name)
    assert all(line.startswith(f"{file}.json") and "\n" not in line and line.endswith(".") for line in found)


@pytest.mark.parametrize(
    "expr",
    [
        "topk(128, node:pyrometer_check:ok)",
        "node:pyrometer_check:ok and topk by (check) (8, max_over_time(node:pyrometer_check:ok[$__range] @ end()))",
        "bottomk(20, max by (node) (node:pyrometer_check:ok))",
    ],
)
def test_a_status_history_of_chosen_rows_is_none_of_too_many(expr: str) -> None:
    board = deepcopy(BOARDS["overview.json"])
    history(expr)(board)
    lines = [finding.line() for finding in run.findings({"overview.json": board}, CONTEXT)]
    assert [line for line in lines if "128 rows" in line] == []


def test_a_median_without_idle_gpus_is_let_pass() -> None:
    board = deepcopy(BOARDS["node.json"])
    clocks = 'max by (cluster, node, gpu) (DCGM_FI_DEV_SM_CLOCK{cluster="$cluster", node="$node"})'
    query(f"quantile(0.5, {clocks} unless on (cluster, node, gpu) gpu:pyrometer_gpu:idle)")(board)
    lines = [finding.line() for finding in run.findings({"node.json": board}, CONTEXT)]
    assert [line for line in lines if "idle" in line] == []


def test_a_query_with_the_same_fault_twice_is_one_finding() -> None:
    board = deepcopy(BOARDS["overview.json"])
    query("max(DCGM_FI_DEV_GPU_TEMP) - min(DCGM_FI_DEV_GPU_TEMP)")(board)
    lines = [finding.line() for finding in run.findings({"overview.json": board}, CONTEXT)]
    assert len([line for line in lines if "of the whole cluster" in line]) == 1


@pytest.mark.parametrize(
    ("where", "value", "words"),
    [
        (("panels",), 3, "panels: 3 is not of type 'array'"),
        (("panels", 0), "x", "panels/0: 'x' is not of type 'object'"),
        (("panels", 0, "gridPos"), [], "panels/0/gridPos: [] is not of type 'object'"),
        (("panels", 0, "targets"), {}, "panels/0/targets"),
        (("panels", 0, "fieldConfig", "defaults", "mappings"), 1, "mappings: 1 is not"),
        (("panels", 0, "fieldConfig", "defaults", "thresholds", "steps"), [1], "thresholds/steps/0"),
        (("uid",), ["a"], "uid: ['a'] is not of type"),
        (("templating", "list", 0), {}, "'name' is a required property"),
        (("annotations",), 3, "annotations: 3"),
    ],
)
def test_a_board_that_is_not_built_like_one_is_said_to_be_so_and_nothing_else(
    where: tuple[Any, ...], value: object, words: str
) -> None:
    board = deepcopy(BOARDS["overview.json"])
    inner: Any = board
    for step in where[:-1]:
        inner = inner[step]
    inner[where[-1]] = value
    (line,) = [finding.line() for finding in run.findings({"b.json": board}, CONTEXT)]
    assert line.startswith("b.json: ")
    assert words in line
    assert "Nothing else of it was checked" in line


@pytest.mark.parametrize(("one", "problem"), [("a\nb", "no PromQL: x\n|= y")])
def test_a_finding_is_one_line_whatever_it_quotes(one: str, problem: str) -> None:
    assert "\n" not in Finding(one, "", problem, "Try it.").line()


@pytest.mark.parametrize("kind", ["gauge", "histogram", "status-history"])
def test_types_are_known_of_kinds_that_our_boards_do_not_have(kind: str) -> None:
    board = deepcopy(BOARDS["overview.json"])
    panel(board, "stat").update(type=kind, options={"colourMode": "value"})
    lines = [finding.line() for finding in schema.check_types("overview.json", board, CONTEXT)]
    assert any("options: " in line and "colourMode" in line for line in lines)


def test_two_boards_of_one_uid_are_found() -> None:
    twice = {"a.json": BOARDS["node.json"], "b.json": BOARDS["node.json"]}
    assert len(list(shape.unique_uids(twice))) == 2


@pytest.mark.skipif(not schema.sdk_available(), reason="grafana-foundation-sdk needs Python 3.11")
@pytest.mark.parametrize(
    ("where", "key"),
    [("options", "colourMode"), ("fieldConfig", "thresholds")],
)
def test_a_key_that_the_sdk_does_not_know_is_lost_on_the_way(where: str, key: str) -> None:
    board = deepcopy(BOARDS["overview.json"])
    panel(board, "stat")[where][key] = "value"
    found = [finding.line() for finding in schema.check_round_trip("overview.json", board, LintContext())]
    assert any(key in line and "lost" in line for line in found)


@pytest.mark.skipif(not schema.sdk_available(), reason="grafana-foundation-sdk needs Python 3.11")
def test_a_data_source_by_name_is_refused_by_the_sdk() -> None:
    board = deepcopy(BOARDS["overview.json"])
    panel(board, "stat")["datasource"] = "Prometheus"
    assert list(schema.check_round_trip("overview.json", board, LintContext()))


def test_without_a_checkout_names_are_not_held_against_a_board(tmp_path: Path) -> None:
    context = run.load_context(tmp_path, BOARDS, {})
    assert (context.metrics, context.runbooks) == (frozenset(), frozenset())
