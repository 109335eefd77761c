"""The page of published figures says what the code counts."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools import flops_figures

PAGE = Path(__file__).parents[2] / "docs/reference/flops.md"


def test_the_page_is_what_the_code_counts() -> None:
    assert PAGE.read_text(encoding="utf-8") == flops_figures.page(), "docs/reference/flops.md is outdated: make docs"


def test_every_table_is_as_long_as_its_source() -> None:
    rows = [line for line in flops_figures.page().splitlines() if line.startswith("| ") and "---" not in line]
    assert sum(line.startswith("| MPT-") and line.count("|") == 11 for line in rows) >= 40
    assert sum(any(line.startswith(f"| {model.name} | `") for line in rows) for model in flops_figures.models()) >= 40


def test_a_wrong_call_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert flops_figures.main([]) == 2
    assert capsys.readouterr().err == "usage: python tools/flops_figures.py FILE\n"
