"""The committed boards are the generated ones, and every query on them is PromQL over metrics that exist."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from pyrometer_dashboards.main import main, rendered
from pyrometer_exporters import node
from pyrometer_exporters.framework.collector import discover
from pyrometer_simulator.stack import find_stack

PROJECT = Path(__file__).parents[2]
COMMITTED = PROJECT / "dashboards" / "json"
METRIC = re.compile(r"\b(?:pyrometer|DCGM|run:pyrometer|port:pyrometer)[A-Za-z0-9_:]*")


def _queries(panel: Any) -> Iterator[str]:
    yield from (target["expr"] for target in panel.get("targets", []))


def _all_queries() -> list[str]:
    boards = [json.loads(text) for text in rendered().values()]
    return [query for board in boards for panel in board["panels"] for query in _queries(panel)]


def test_the_committed_boards_are_the_generated_ones() -> None:
    committed = {path.name: path.read_text() for path in COMMITTED.glob("*.json")}
    assert committed == rendered(), "run: make docs"


def test_every_panel_says_what_it_shows_and_has_its_own_place() -> None:
    for name, text in rendered().items():
        board = json.loads(text)
        places = [tuple(panel["gridPos"].items()) for panel in board["panels"]]
        assert len(set(places)) == len(places), name
        assert all(panel["title"] and panel["description"] and panel["targets"] for panel in board["panels"]), name
        assert board["uid"].startswith("pyrometer-")


def test_every_query_names_metrics_that_exist() -> None:
    known = {family.name for spec in discover(node) for family in spec.families}
    for path in (PROJECT / "alert_rules").glob("*.rules.yaml"):
        for group in yaml.safe_load(path.read_text())["groups"]:
            known |= {rule["record"] for rule in group["rules"] if "record" in rule}
    named = {name for query in _all_queries() for name in METRIC.findall(query)}
    assert named
    assert named - known == set()


def test_per_batch_series_are_shown_batch_by_batch() -> None:
    boards = [json.loads(text) for text in rendered().values()]
    targets = [target for board in boards for panel in board["panels"] for target in panel["targets"]]
    batches = [target for target in targets if target["expr"].startswith("pyrometer_train_batch_")]
    assert batches
    assert all(target["expr"].endswith("[$__range]") and target["instant"] for target in batches)


def test_every_query_is_promql(tmp_path: Path) -> None:
    # A rule can't record a range; without its brackets the selector is the same one.
    expressions = [query.replace("$__rate_interval", "1m").removesuffix("[$__range]") for query in _all_queries()]
    rules = [{"record": f"board:query:{number}", "expr": query} for number, query in enumerate(expressions)]
    path = tmp_path / "queries.rules.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "boards", "rules": rules}]}))
    promtool = find_stack().promtool
    checked = subprocess.run([promtool, "check", "rules", path], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


def test_an_unwritable_folder_ends_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert main(["generate", str(tmp_path / "file" / "boards")]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "can't write" in said


@pytest.mark.parametrize("arguments", [["--unknown"], [], ["generate"], ["nothing"]])
def test_wrong_arguments_end_in_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1
