"""The board that Grafana would save is compared with ours."""

from __future__ import annotations

import pytest
from tools.screenshots.__main__ import main
from tools.screenshots.boards import View, differences


def test_what_is_the_servers_or_the_viewers_is_no_difference() -> None:
    ours = {"panels": [{"pluginVersion": "12.2.0", "steps": [{"value": None}]}], "time": {"from": "now-1h"}}
    theirs = {
        "id": 7,
        "version": 3,
        "panels": [{"pluginVersion": "12.3.1", "steps": [{"value": 0}]}],
        "time": {"from": "now-15m"},
        "templating": None,
    }
    assert differences(ours, theirs) == []


def test_a_hidden_column_by_its_older_name_is_no_difference() -> None:
    def hides(name: str) -> dict[str, object]:
        return {"properties": [{"id": "custom.hideFrom.viz", "value": True}, {"id": name, "value": True}]}

    assert differences(hides("custom.hidden"), hides("custom.hideFrom.viz")) == []
    assert differences(hides("custom.hidden"), hides("custom.width")) != []


def test_a_dropped_an_added_and_a_changed_key_are() -> None:
    found = differences({"a": 1, "b": {"c": [1, 2]}}, {"b": {"c": [1, 3]}, "d": "x"})
    assert [each.split(":")[0] for each in found] == ["/a", "/b/c[1]", "/d"]


@pytest.mark.parametrize(
    "flags", [["--size=big"], ["--size=1600x"], ["--variable=node"], ["--case=hot:node"], ["--board=none"]]
)
def test_wrong_flags_end_in_one_line(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--grafana-url=http://127.0.0.1:1", *flags]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_picture_is_named_after_its_board_and_how_it_was_taken() -> None:
    assert View("dark", ("now-1h", "now"), (1600, 900)).label("gpu-matrix") == "gpu-matrix-dark-1600x900"
    assert View("light", ("now-1h", "now"), (1, 2), case="hot").label("node") == "node-hot-light-1x2"
