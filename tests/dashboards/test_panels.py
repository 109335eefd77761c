"""Properties that all panels of a kind share."""

from __future__ import annotations

import json
import re

import pytest
from tools.board_lint import finding

from pyrometer_dashboards import palette, panels
from pyrometer_dashboards.main import rendered


@pytest.mark.parametrize("name", ["llama3-70b", "moe-1t", "run_7", "PRETRAIN", "a", "0"])
def test_a_run_has_one_colour_of_the_palette_whatever_its_name(name: str) -> None:
    found = [each.properties["color"]["fixedColor"] for each in panels.named() if re.search(each.name.strip("/"), name)]
    assert len(found) == 1
    assert found[0] in palette.RUNS


def test_runs_that_are_counted_have_different_colours() -> None:
    runs = [f"pretrain-{number}" for number in range(5)]
    ends = [next(at for at, each in enumerate(panels.named()) if re.search(each.name.strip("/"), run)) for run in runs]
    assert sorted(ends) == list(range(5))


def test_no_series_is_left_to_grafanas_own_palette() -> None:
    modes = {
        panel.get("fieldConfig", {}).get("defaults", {}).get("color", {}).get("mode")
        for text in rendered().values()
        for panel in finding.panels(json.loads(text))
    }
    assert modes <= {None, "fixed", "shades", "thresholds"}


def test_a_matrix_has_its_rows_names_first() -> None:
    steps = panels.matrix("node", "gpu", {"id": "between", "options": {}}, first=["worst"])
    assert [each["id"] for each in steps] == ["groupingToMatrix", "between", "organize"]
    assert steps[0]["options"]["rowField"] == "node"
    assert steps[-1]["options"]["renameByName"] == {"node\\gpu": "node"}
    assert steps[-1]["options"]["indexByName"] == {"node\\gpu": 0, "worst": 1}
