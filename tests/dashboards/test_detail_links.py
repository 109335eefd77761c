"""A row that names a GPU, a job, a run, a rack or a switch leads to the board that is about it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tools.board_lint import finding

from pyrometer_dashboards.main import rendered

Json = dict[str, Any]
# Where each label leads; alerts carry their own targets, as they may name no such part.
LEADS = {
    "gpu": ("/d/pyrometer-gpu?", "var-index="),
    "job_id": ("/d/pyrometer-job?", "var-job="),
    "run": ("/d/pyrometer-training-run?", "var-run=", "var-job_id="),
    "rack": ("/d/pyrometer-racks?", "var-rack="),
    "switch": ("/d/pyrometer-racks?", "var-switch="),
    "node": ("/d/pyrometer-", "var-node="),
}
TARGETS = "${__data.fields.to"
# Its rows are also of all GPUs of a node, which lead to the node.
OF_NODES = "GPUs without data"
# Its rows are of several jobs of a run, which lead to the newest one.
OF_JOBS = "Interruptions of runs"


def rows(board: Json) -> Iterator[tuple[str, str, str]]:
    """Yield the title of each table, a label that LEADS has, and all addresses of its column."""
    for panel in finding.panels(board):
        for label, heading in _columns(panel).items():
            own = [
                each["value"]
                for override in panel["fieldConfig"]["overrides"]
                if override["matcher"]["options"] == heading
                for each in override["properties"]
                if each["id"] == "links"
            ]
            links = own[-1] if own else panel["fieldConfig"]["defaults"].get("links", [])
            yield panel["title"], label, " ".join(link["url"] for link in links)


def _columns(panel: Json) -> dict[str, str]:
    """Return the headings of a table's columns by their labels, those of LEADS only."""
    steps = {each["id"]: each["options"] for each in panel.get("transformations", [])}
    if panel["type"] != "table" or "filterFieldsByName" not in steps:
        return {}
    renamed = steps.get("organize", {}).get("renameByName", {})
    names = steps["filterFieldsByName"]["include"]["names"]
    return {name: renamed.get(name, name) for name in names if name in LEADS}


def led_nowhere(boards: dict[str, Json]) -> list[str]:
    return [
        f"{name} / {title} / {label}"
        for name, board in boards.items()
        for title, label, urls in rows(board)
        if TARGETS not in urls and not all(part in urls for part in _expected(title, label))
    ]


def _expected(title: str, label: str) -> tuple[str, ...]:
    return LEADS["node"] if title == OF_NODES else LEADS[label][: 2 if title == OF_JOBS else None]


def test_every_row_leads_to_the_board_of_the_part_that_it_names() -> None:
    boards = {name: json.loads(text) for name, text in rendered().items()}
    assert len([row for board in boards.values() for row in rows(board)]) > 50
    assert led_nowhere(boards) == []


def test_a_row_whose_job_leads_nowhere_is_found() -> None:
    board = json.loads(rendered()["overview.json"])
    for panel in finding.panels(board):
        for override in panel["fieldConfig"]["overrides"]:
            if override["matcher"]["options"] == "job":
                override["properties"] = [each for each in override["properties"] if each["id"] != "links"]
    assert "overview.json / Jobs that launch no collective / job_id" in led_nowhere({"overview.json": board})
