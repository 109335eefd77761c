"""Find on our boards what Grafana 11.6 leaves out without a word."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tools.board_lint import finding, older
from tools.board_lint.finding import LintContext

from pyrometer_dashboards.main import rendered


def found(board: dict[str, Any]) -> list[str]:
    return [each.line() for each in older.check("overview.json", board, LintContext())]


@pytest.mark.parametrize(
    ("kind", "change", "words"),
    [
        ("timeseries", {"options": {"timeCompare": "1d"}}, "'timeCompare' was unexpected"),
        ("table", {"type": "heat"}, "a panel of the kind heat"),
        ("table", {"transformations": [{"id": "smoothing"}]}, "the transformation smoothing"),
        ("table", {"custom.tooltip.field": "run"}, "the override custom.tooltip.field"),
        ("table", {"custom.hideFrom.viz": True}, "custom.hideFrom.viz of a table without custom.hidden"),
        ("stat", {"fieldShade": True}, "the override fieldShade"),
    ],
)
def test_what_grafana_11_does_not_know_is_found(kind: str, change: dict[str, Any], words: str) -> None:
    board = json.loads(rendered()["overview.json"])
    assert found(board) == []
    panel = next(each for each in finding.panels(board) if each["type"] == kind)
    if change.keys() & panel.keys():
        panel.update(change)
    else:
        properties = [{"id": key, "value": value} for key, value in change.items()]
        matcher = {"id": "byName", "options": "Value"}
        panel["fieldConfig"]["overrides"].append({"matcher": matcher, "properties": properties})
    assert [line for line in found(board) if words in line], found(board)
