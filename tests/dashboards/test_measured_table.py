"""The table of what panels cost names panels that exist."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tools.board_lint import finding

from pyrometer_dashboards.main import rendered

PAGE = Path(__file__).parents[2] / "docs/dashboards.md"
_ROW = re.compile(r"^\| ([\w-]+) \| (.+?) \| \d+ \| [\d.]+ \| \d+ \|$", re.MULTILINE)


def test_each_measured_panel_is_one_of_its_board() -> None:
    text = PAGE.read_text(encoding="utf-8").partition("<!-- measured: begin -->")[2]
    rows = set(_ROW.findall(text.partition("<!-- measured: end -->")[0]))
    shown = {
        (name.removesuffix(".json"), panel["title"])
        for name, board in rendered().items()
        for panel in finding.panels(json.loads(board))
    }
    assert rows
    assert rows - shown == set()
