"""On a laptop's first screen a reader finds which run is sick, who is to blame and what to do.

The text is read from the drawn page, in a real Grafana: GRAFANA_HOME is the folder of one (of a release, or built),
which is started with a Prometheus and a simulated cluster for each fault; or PYROMETER_GRAFANA_URL is the address of a
running one (docs/dashboards.md).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.dashboards.grafana import NO_GRAFANA, grafana_of_faults
from tools.screenshots.browser import BrowserError, find_chromium
from tools.screenshots.grafana import board_url, load_board

from pyrometer_dashboards.main import rendered
from pyrometer_simulator.fleet.plan import single_faults

LAPTOP = (1366, 768)
NODES = 16
BELOW = "below-the-fold"
# The cluster with one planted fault, the board, its variables, and the words that answer: which run or part, why, what
# to do.
Asked = tuple[str, str, dict[str, str], tuple[str, ...]]
ASKED: tuple[Asked, ...] = (
    ("throttled-gpu", "overview", {}, ("llama3-70b slow", "gpu-002 GPU 3", "throttled by heat", "runbook")),
    ("throttled-gpu", "throttling", {}, ("gpu-002 GPU 3", "hw_thermal")),
    ("throttled-gpu", "gpu-detail", {"node": "gpu-002", "index": "3"}, ("hw_thermal",)),
    ("flapping-rail", "fabric", {}, ("gpu-006", "mlx5_5")),
    ("flapping-rail", "node", {"node": "gpu-006"}, ("Links lost mlx5_5",)),
    ("straggler", "overview", {}, ("llama3-70b slow", "gpu-010 GPU 5", "slower than its stage", "runbook")),
    ("straggler", "training-run", {"run": "llama3-70b"}, ("gpu-010 GPU 5",)),
    ("dead-exporter", "overview", {}, ("gpu-010",)),
    ("dead-exporter", "stack-health", {}, ("gpu-010",)),
    ("dead-exporter", "nodes-and-spares", {}, ("gpu-010", "no answer, under repair")),
    ("lost-gpu", "overview", {}, ("llama3-70b stopped", "gpu-011 GPU 6", "the GPU fell off the bus", "runbook")),
    ("lost-gpu", "node", {"node": "gpu-011"}, ("GPU 6", "1654900010", "llama3-70b is stopped")),
    ("lost-gpu", "gpu-matrix", {}, ("gpu-011",)),
    ("lost-batch", "training-run", {"run": "llama3-70b"}, ("Batches lost 1",)),
    ("memory-error", "node", {"node": "gpu-006"}, ("GPU 2",)),
    ("memory-error", "nodes-and-spares", {}, ("gpu-006", "1 uncorrected error")),
    ("memory-error", "alerts", {}, ("GpuEccUncorrected", "gpu-006", "runbook")),
    ("out-of-memory", "hosts", {}, ("gpu-006",)),
    ("out-of-memory", "alerts", {}, ("HostOutOfMemory", "gpu-006", "runbook")),
    ("narrow-link", "alerts", {}, ("NicLinkDegraded", "gpu-011", "runbook")),
    ("narrow-link", "fabric", {}, ("Links slower than they were", "gpu-011", "mlx5_1")),
    ("pinned-counter", "alerts", {}, ("NicCounterSaturated", "gpu-002", "runbook")),
    ("pinned-counter", "fabric", {}, ("gpu-002", "mlx5_4")),
    ("healthy", "overview", {}, ("all runs are at their pace", "all answer")),
)
UIDS = {name.removesuffix(".json"): json.loads(text)["uid"] for name, text in rendered().items()}


@pytest.fixture(scope="module")
def grafana(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Grafana with our boards, and one whose answers begin below the first screen."""
    url, home = os.environ.get("PYROMETER_GRAFANA_URL", ""), os.environ.get("GRAFANA_HOME", "")
    if url:
        yield url
    elif home:
        boards = {**rendered(), f"{BELOW}.json": json.dumps(_pushed_down(json.loads(rendered()["overview.json"])))}
        with grafana_of_faults(Path(home), tmp_path_factory.mktemp("grafana"), boards, NODES) as address:
            yield address
    else:
        pytest.skip(NO_GRAFANA)


def _pushed_down(board: dict[str, Any]) -> dict[str, Any]:
    """Return the board with its tables below the first screen, under another name."""
    for panel in board["panels"]:
        panel["gridPos"]["y"] += 30 if panel["type"] == "table" else 0
    return board | {"uid": BELOW, "title": BELOW}


def _first_screen(url: str, uid: str, variables: dict[str, str]) -> str:
    """Return all text on the first screen of a laptop, with Grafana's menu docked."""
    try:
        program = find_chromium()
    except BrowserError as error:
        pytest.skip(str(error))
    where = board_url(url, uid, "dark", ("now-15m", "now"), variables, kiosk=False)
    return " ".join(text for _, text in load_board(program, where, LAPTOP, docked=True).texts)


def _unanswered(shown: str, words: tuple[str, ...]) -> list[str]:
    return [word for word in words if word not in shown]


@pytest.mark.e2e
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("cluster", "board", "more", "words"), ASKED, ids=[f"{a[0]}-{a[1]}" for a in ASKED])
def test_the_first_screen_of_a_laptop_answers(
    cluster: str, board: str, more: dict[str, str], words: tuple[str, ...], grafana: str
) -> None:
    chosen = {"cluster": cluster, "datasource": "prometheus", **more}
    shown = _first_screen(grafana, UIDS[board], chosen)
    assert _unanswered(shown, words) == [], shown


@pytest.mark.e2e
@pytest.mark.timeout(1200)
def test_an_answer_below_the_first_screen_is_none(grafana: str) -> None:
    if os.environ.get("PYROMETER_GRAFANA_URL"):
        pytest.skip("the planted board is only in a Grafana of our own: GRAFANA_HOME")
    cluster, _, _, words = ASKED[0]
    shown = _first_screen(grafana, BELOW, {"cluster": cluster, "datasource": "prometheus"})
    assert "Runs in trouble" in shown
    assert _unanswered(shown, words)


def test_every_planted_situation_is_asked_about() -> None:
    faults = single_faults(NODES)
    assert {cluster for cluster, *_ in ASKED} == set(faults)
    assert len(faults) == 1 + 10
