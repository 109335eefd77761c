"""The table of alerts and scrape intervals: what a scrape takes of a test's series, and rows as they are played."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tools.alert_intervals import fires_after, plays, samples, scraped

from pyrometer_simulator.stack import Stack
from pyrometer_simulator.stack.promtool import rules_of

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/reference/scrape-intervals.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"(?m)^\| \[(\w+)\]\S+ \| (.+) \|$", PAGE))


def test_every_alert_has_its_row() -> None:
    rules = rules_of(sorted((ROOT / "alert_rules").glob("*.rules.yaml")))
    assert sorted(ROWS) == sorted({rule["alert"] for rule in rules if "alert" in rule})


def test_promtools_notation_is_read() -> None:
    assert samples("0+1x2 _ 5x1 stale _x2 1e9 9-2x1") == [
        "0",
        "1",
        "2",
        "_",
        "5",
        "5",
        "stale",
        "_",
        "_",
        "1000000000",
        "9",
        "7",
    ]
    with pytest.raises(ValueError, match="'1x' is no sample"):
        samples("1x")


def test_a_scrape_takes_what_is_there_at_its_moments() -> None:
    assert scraped("0+1x6", 15, 30, 15) == "0 _ 2 _ 4 _ 6"
    assert scraped("1 2", 15, 5, 5) == "1 1 1 2 2 2"
    assert scraped("1 stale", 15, 15, 5) == "1 _ _ stale _ _"


@pytest.mark.parametrize(("alert", "file"), [("GpuThrottledThermal", "gpu"), ("NodeInMaintenance", "maintenance")])
def test_a_row_is_what_is_played_at_a_minute(stack: Stack, tmp_path: Path, alert: str, file: str) -> None:
    play = next(each for each in plays(tmp_path, file) if each.alert == alert)
    first, last = (fires_after(stack.promtool, play, scrape) for scrape in (5, 60))
    assert first is not None
    assert last is not None
    assert ROWS[alert].split(" | ")[-1] == f"{last - first:.0f}"
