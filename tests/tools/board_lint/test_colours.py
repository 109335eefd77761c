"""Find what a board says by its colours alone."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tools.board_lint import colours
from tools.board_lint.finding import LintContext

from pyrometer_dashboards import palette
from pyrometer_dashboards.main import rendered

Board = dict[str, Any]
BOARDS: dict[str, str] = {name.removesuffix(".json"): text for name, text in rendered().items()}


def found(board: Board) -> list[str]:
    return [each.line() for each in colours.check("board.json", board, LintContext())]


def panel(board: Board, kind: str) -> dict[str, Any]:
    return next(each for each in board["panels"] if each["type"] == kind)


@pytest.mark.parametrize("name", BOARDS)
def test_our_boards_say_nothing_by_colour_alone(name: str) -> None:
    assert found(json.loads(BOARDS[name])) == []


def test_a_map_without_a_table_is_found() -> None:
    board = json.loads(BOARDS["gpu-matrix"])
    board["panels"] = [each for each in board["panels"] if each["type"] != "table"]
    (line,) = found(board)
    assert line.startswith("board.json: GPU map: every GPU against its rail: it is painted, and no words")


def test_a_timeline_without_a_legend_needs_a_table_of_its_metric() -> None:
    board = json.loads(BOARDS["nodes-and-spares"])
    one = panel(board, "state-timeline")
    one["options"]["legend"] = {"showLegend": False}
    assert found(board) == []
    one["targets"] = [{**one["targets"][0], "expr": 'rack:pyrometer_gpu_temperature:max{cluster="$cluster"}'}]
    assert "Nodes that were not fit in the range: it is painted, and no words" in found(board)[0]


def test_a_colour_without_its_number_or_its_word_is_found() -> None:
    board = json.loads(BOARDS["overview"])
    one = panel(board, "stat")
    one["options"]["textMode"] = "none"
    state = {"0": {"color": palette.WORST, "index": 1, "text": " "}}
    one["fieldConfig"]["defaults"]["mappings"] = [{"type": "value", "options": state}]
    lines = found(board)
    assert [line for line in lines if "a colour without its number" in line]
    assert [line for line in lines if f"the colour {palette.WORST} without a word" in line]
