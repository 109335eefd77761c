"""A board without data says what it needs, and leads to the page that says what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tools.screenshots.grafana import undrawn

from pyrometer_dashboards.main import all_boards, rendered

PAGE = Path(__file__).parents[2] / "docs/no-data.md"
BOARDS = {name: json.loads(text) for name, text in rendered().items()}


@pytest.mark.parametrize("name", BOARDS)
def test_a_board_says_on_its_first_screen_what_it_needs(name: str) -> None:
    # A row of Grafana's grid is 38 px: 18 of them are on a laptop's screen.
    first = [panel for panel in BOARDS[name]["panels"] if panel["gridPos"]["y"] < 16]
    said = [panel["fieldConfig"]["defaults"].get("noValue", "") for panel in first]
    assert [text for text in said if "this board needs" in text and PAGE.name in text]


@pytest.mark.parametrize("name", BOARDS)
def test_a_board_leads_to_what_to_do_without_data(name: str) -> None:
    (link,) = [each for each in BOARDS[name]["links"] if each["title"] == "No data?"]
    page, _, heading = link["url"].partition("#")
    assert page.endswith(f"/runbooks/docs/{PAGE.name}")
    assert f"\n## {heading}\n" in PAGE.read_text(encoding="utf-8")
    assert link["tooltip"] == all_boards()[name].needs


# Nothing stands in for a run on *Compare runs* yet, which has a chart of points.
_OPEN = {"Loss by step", "MFU by step"}


@pytest.mark.parametrize("kind", ["state-timeline", "heatmap", "xychart"])
def test_a_chart_that_grafana_cannot_draw_empty_has_a_row_without_data(kind: str) -> None:
    drawn: list[dict[str, Any]] = [
        panel
        for board in BOARDS.values()
        for panel in board["panels"]
        if panel["type"] == kind and panel["title"] not in _OPEN
    ]
    assert drawn
    for panel in drawn:
        assert any("vector(" in target["expr"] for target in panel["targets"]), panel["title"]


def test_what_grafana_could_not_draw_is_a_problem() -> None:
    texts = [
        ("Map", "Map Err"),
        ("Ports", "Ports Data does not have a time field"),
        ("Errors", "Errors no data"),
        ("Racks", "Racks 40 °C"),
    ]
    assert undrawn(texts) == ["not drawn: Map: Err", "not drawn: Ports: Data does not have a time field"]
