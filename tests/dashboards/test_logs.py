"""Logs are asked of a Loki, and only once somebody unfolds their row: without a Loki a board has no error."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tools.board_lint import finding
from tools.board_lint.interpolation import interpolate

from pyrometer_dashboards.main import rendered

LOKI = {"type": "loki", "uid": "${loki}"}
WITH_LOGS = ("job.json", "node.json")


def logs(board: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {panel["title"]: panel for panel in finding.panels(board) if panel["type"] == "logs"}


@pytest.mark.parametrize("name", WITH_LOGS)
def test_nothing_asks_for_logs_before_their_row_is_unfolded(name: str) -> None:
    board = json.loads(rendered()[name])
    assert set(logs(board)) == {"Kernel's log", "Trainer's log"}
    assert not [panel for panel in finding.visible(board) if panel["type"] == "logs"]
    (source,) = [each for each in board["templating"]["list"] if each.get("query") == "loki"]
    assert (source["name"], source["type"]) == ("loki", "datasource")


def test_other_boards_do_not_look_for_a_loki() -> None:
    assert [name for name, text in rendered().items() if "loki" in text] == [*WITH_LOGS]


@pytest.mark.parametrize(
    ("name", "kernel", "trainer"),
    [
        (
            "node.json",
            '{cluster="c1", node="n1", source="kernel"}',
            '{cluster="c1", node="n1", source="trainer"}',
        ),
        (
            "job.json",
            '{cluster="c1", node=~"(n1|n2)", source="kernel"}',
            '{cluster="c1", job_id="7", source="trainer"}',
        ),
    ],
)
def test_the_logs_are_those_of_the_node_or_of_the_job(name: str, kernel: str, trainer: str) -> None:
    chosen = {"cluster": "c1", "node": "n1", "nodes": "(n1|n2)", "job": "7"}
    asked = {}
    for title, panel in logs(json.loads(rendered()[name])).items():
        (target,) = panel["targets"]
        assert panel["datasource"] == target["datasource"] == LOKI
        assert target["queryType"] == "range"
        asked[title] = interpolate(target["expr"], chosen)
    assert asked == {"Kernel's log": kernel, "Trainer's log": trainer}
