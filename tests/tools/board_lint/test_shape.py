"""Find a first screen that a browser needs long for."""

from __future__ import annotations

import json
from typing import Any

from tools.board_lint import shape
from tools.board_lint.finding import LintContext

from pyrometer_dashboards.main import rendered

Board = dict[str, Any]


def found(board: Board) -> list[str]:
    return [each.line() for each in shape.check("node.json", board, LintContext()) if not each.panel]


def node() -> Board:
    board: Board = json.loads(rendered()["node.json"])
    return board


def test_more_panels_than_a_first_screen_has_time_for_are_found() -> None:
    board = node()
    assert found(board) == []
    board["panels"] += [{**board["panels"][0], "id": 900 + at} for at in range(3)]
    lines = found(board)
    assert [line for line in lines if "13 panels on the first screen" in line], lines


def test_a_panel_of_which_only_the_title_is_on_the_first_screen_is_found() -> None:
    board = node()
    board["panels"].append({**board["panels"][0], "gridPos": {"x": 0, "y": 22, "w": 8, "h": 8}})
    lines = found(board)
    assert [line for line in lines if "the first screen shows only the title" in line], lines


def test_what_begins_below_the_first_screen_costs_nothing() -> None:
    board = node()
    board["panels"].append({**board["panels"][0], "gridPos": {"x": 0, "y": 200, "w": 8, "h": 8}})
    assert found(board) == []
