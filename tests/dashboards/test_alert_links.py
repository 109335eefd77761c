"""Alerts lead to the board that shows them and to their runbook, also those that name no part."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.dashboards.planted import answer, expression, gives
from tools.board_lint import finding, links
from tools.board_lint.finding import LintContext

from pyrometer_dashboards import common
from pyrometer_dashboards.main import all_boards, rendered
from pyrometer_simulator.stack.promtool import rules_of

RULES = Path(__file__).parents[2] / "alert_rules"
FIRING = "Firing now, with the part that is meant"
RUN = "training-run?var-run=r"
# An alert, its labels, and where its name, its node's cell and its run's cell lead to.
LED = {
    "a GPU": ("GpuLost", 'node="n1", gpu="3"', "node?var-node=n1", "node?var-node=n1", "node?var-node=n1"),
    "a rank": ("TrainStraggler", 'node="n1", run="r"', RUN, "node?var-node=n1", RUN),
    "a run": ("TrainStalled", 'run="r"', RUN, RUN, RUN),
    "no part": ("FabricMassEvent", 'rail="3"', "fabric?", "fabric?", "fabric?"),
    "the stack": ("PrometheusRulesLate", 'job="x"', "stack-health?", "stack-health?", "stack-health?"),
}  # fmt: skip


def _alerts() -> set[str]:
    return {rule["alert"] for rule in rules_of(RULES.glob("*.rules.yaml")) if "alert" in rule}


def test_every_alert_has_a_board_that_exists() -> None:
    uids = {board.uid for board in all_boards().values()}

    def board_of(alert: str) -> str:
        return [board for names, board in common._BOARDS if re.fullmatch(names, alert)][-1]

    assert {board_of(alert) for alert in _alerts()} <= uids
    assert board_of("GpuThrottledThermal") == "pyrometer-throttling"
    assert board_of("SomebodyElsesAlert") == "pyrometer-stack-health"


@pytest.mark.parametrize("what", LED)
def test_an_alert_leads_to_its_part_and_without_one_to_its_board(what: str, tmp_path: Path) -> None:
    alert, labels, to, to_node, to_run = LED[what]
    own = f'alertname="{alert}", severity="warning", cluster="c1", {labels}'
    series = {f"ALERTS_FOR_STATE{{{own}}}": "0x120", f'ALERTS{{{own}, alertstate="firing"}}': "1x120"}
    asked = f"max by (to, to_node, to_run, book) ({expression('alerts', FIRING)} and on (alertname) ALERTS{{{own}}})"
    there = {"to": to, "to_node": to_node, "to_run": to_run}
    names = ", ".join(f'{label}="pyrometer-{value}"' for label, value in there.items())
    assert answer(tmp_path, series, [gives(asked, (f'{{book="runbook", {names}}}', 1200))]) == ""


def _boards() -> dict[str, Any]:
    return {name: json.loads(text) for name, text in rendered().items()}


def test_every_panel_with_a_runbook_has_it_one_click_away() -> None:
    alerts, linked = _alerts(), 0
    for board in _boards().values():
        for panel in finding.panels(board):
            if "docs/alerts.md#" in panel["description"]:
                (link,) = panel["links"]
                assert link["url"].rpartition("/")[2] in alerts
                linked += 1
        if any(panel.get("links") for panel in finding.panels(board)):
            assert any(each["name"] == "alerting" for each in board["templating"]["list"])
    assert linked > 50


def test_every_column_of_alerts_leads_to_the_board_and_has_a_runbook_beside_it() -> None:
    seen = 0
    for board in _boards().values():
        for panel in finding.panels(board):
            columns = {one["matcher"]["options"]: one["properties"] for one in panel["fieldConfig"]["overrides"]}
            if panel["type"] == "table" and "alert" in columns:
                urls = [json.dumps(properties) for properties in columns.values()]
                assert any("/runbooks/${__data.fields.alert}" in url for url in urls)
                assert "__data.fields.to:raw" in json.dumps(columns["alert"])
                seen += 1
    assert seen >= 3


def test_a_panel_without_its_runbook_and_a_link_of_nothing_are_findings() -> None:
    board = _boards()["overview.json"]
    found = list(links.check("b.json", board, LintContext()))
    assert [each for each in found if "runbook" in each.problem or "without a value" in each.problem] == []
    first, table = board["panels"][0], next(each for each in board["panels"] if each["title"].startswith("Runs:"))
    del first["links"]
    for override in table["fieldConfig"]["overrides"]:
        override["properties"] = [each for each in override["properties"] if each["id"] != "links"]
    problems = {(each.panel, each.problem) for each in links.check("b.json", board, LintContext())}
    assert (first["title"], "its runbook is not one click away") in problems
    assert any("the column costs links" in problem for _, problem in problems)
