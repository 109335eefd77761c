"""The table of results: every trial has its cell, and none is skipped unseen."""

from __future__ import annotations

import dataclasses
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
        "| no trial | ok, 231 s | failed: status 2: a \\| b, on 2026-11-22 | ok, 215 s (set up before) | 2026-11-23 |"
    )
    assert rows[3].startswith("| Ubuntu 24.04 | root | `make smoke` | not run: archive not reachable |")
    assert len(rows) == 4


def page_with(folder: Path, text: str) -> Path:
    page = folder / "systems.md"
    page.write_text(f"# Systems\n\n{table.BEGIN}\n{text}{table.END}\n\nMore.\n")
    return page


def test_what_was_not_tried_again_stays_with_its_date(tmp_path: Path) -> None:
    page = page_with(tmp_path, table.render([NOT_RUN, OK, FAILED, LATER]))
    table.write([dataclasses.replace(OK, seconds=100.0, date="2026-11-27")], page)
    table.write([dataclasses.replace(LATER, seconds=90.0, date="2026-11-28")], page)
    rows = page.read_text().splitlines()[5:-3]
    assert rows == [
        (
            "| Debian 12 | newcomer | `make demo DEMO_FLAGS=--exit-after-scenario` | no trial "
            "| ok, 100 s, on 2026-11-27 | failed: status 2: a \\| b, on 2026-11-22 "
            "| ok, 90 s (set up before) | 2026-11-28 |"
        ),
        table.render([NOT_RUN]).splitlines()[2],
    ]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [(f"{table.BEGIN}\n| system | date |\n| --- | --- |\n{table.END}\n", "other columns"), ("# Systems\n", "no marks")],
)
def test_a_page_without_such_a_table_is_refused_and_kept(tmp_path: Path, text: str, complaint: str) -> None:
    page = tmp_path / "systems.md"
    page.write_text(text)
    with pytest.raises(StackError, match=complaint):
        table.write([OK], page)
    assert page.read_text() == text


def test_the_projects_own_page_has_a_table_that_keeps_its_rows(tmp_path: Path) -> None:
    page = tmp_path / "systems.md"
    before = (Path(__file__).parents[3] / "docs/systems.md").read_text(encoding="utf-8")
    page.write_text(before, encoding="utf-8")
    table.write([], page)
    assert page.read_text(encoding="utf-8") == before
