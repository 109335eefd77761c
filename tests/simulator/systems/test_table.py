"""The table of results: every trial has its cell, and none is skipped unseen."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyrometer_simulator.stack.errors import StackError
from pyrometer_simulator.systems import table
from pyrometer_simulator.systems.trials import Result

OK = Result("Debian 12", "ordinary", "forbidden", "demo", "ok", 231.4, date="2026-11-23")
FAILED = Result("Debian 12", "ordinary", "absent", "demo", "failed", 9, "status 2: a | b", "2026-11-22")
LATER = Result("Debian 12", "ordinary", "container", "demo", "ok", 215, "set up before", "2026-11-23")
NOT_RUN = Result(
    "Ubuntu 24.04", "root", "readable", "smoke", "not run", note="archive not reachable", date="2026-11-23"
)


def test_a_row_has_a_cell_per_profile_and_the_last_date() -> None:
    rows = table.render([NOT_RUN, OK, FAILED, LATER]).splitlines()
    assert rows[2] == (
        "| Debian 12 | newcomer | `make demo DEMO_FLAGS=--exit-after-scenario` "
        "| no trial | ok, 231 s | failed: status 2: a \\| b | ok, 215 s (set up before) | 2026-11-23 |"
    )
    assert rows[3].startswith("| Ubuntu 24.04 | root | `make smoke` | not run: archive not reachable |")
    assert len(rows) == 4


def test_the_table_takes_the_place_of_the_one_between_the_marks(tmp_path: Path) -> None:
    page = tmp_path / "systems.md"
    page.write_text(f"# Systems\n\n{table.BEGIN}\nold\n{table.END}\n\nMore.\n")
    table.write([OK], page)
    text = page.read_text()
    assert "old" not in text
    assert text.startswith("# Systems\n\n")
    assert text.endswith(f"{table.END}\n\nMore.\n")
    assert "ok, 231 s" in text


def test_a_page_without_marks_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "systems.md"
    page.write_text("# Systems\n")
    with pytest.raises(StackError, match="no marks"):
        table.write([OK], page)


def test_the_projects_own_page_has_the_marks() -> None:
    page = Path(__file__).parents[3] / "docs/systems.md"
    assert table.BEGIN in page.read_text(encoding="utf-8")
