"""Times of boards become a table in a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.screenshots import boards
from tools.screenshots.__main__ import main
from tools.screenshots.boards import View, Visit
from tools.screenshots.grafana import PageLoad


def _visit(board: str, seconds: float, start: float) -> Visit:
    return Visit(board, View("dark", ("now-1h", "now"), (1600, 900)), PageLoad(seconds, 0.4, 12), start, [])


def test_a_board_is_told_beside_the_empty_one_of_its_own_round() -> None:
    rounds = [_visit("fabric", 3.0, 2.0), _visit("fabric", 2.4, 1.6), _visit("fabric", 9.0, 3.0)]
    text = boards.timing_table(rounds, (1600, 900))
    assert "Median of 3 rounds at 1600x900" in text
    assert "it took 2.00 s" in text
    # Medians each: 3.0 s; 1.0, 0.8, 6.0 s beyond; 1.5, 1.5 and 3 times.
    assert text.splitlines()[-1] == "| fabric | 12 | 3.00 | 1.00 | 1.50 |"


def test_every_board_has_one_row() -> None:
    text = boards.timing_table([_visit(board, 2.0, 1.0) for _ in range(5) for board in ("alerts", "node")], (1600, 900))
    assert [row.split(" | ")[0] for row in text.splitlines()[-2:]] == ["| alerts", "| node"]
    assert "Median of 5 rounds" in text


def test_the_table_replaces_what_stands_between_its_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before {boards.BEGIN} and {boards.END}\n{boards.BEGIN}\nold\n{boards.END}\nafter\n")
    for _ in range(2):
        boards.replace_between_marks(page, "new")
    assert page.read_text() == f"before {boards.BEGIN} and {boards.END}\n{boards.BEGIN}\nnew\n{boards.END}\nafter\n"


def test_a_page_without_marks_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing")
    with pytest.raises(ValueError, match="has no lines"):
        boards.replace_between_marks(page, "new")
    assert page.read_text() == "nothing"


def test_no_rounds_are_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--grafana-url=http://127.0.0.1:1", "--rounds=0"]) == 2
    assert capsys.readouterr().err == "screenshots: --rounds must be at least 1\n"
