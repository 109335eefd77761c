"""Boards without a Grafana: every board is drawn, whatever Prometheus answers."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from pyrometer_kit.prometheus import Series
from pyrometer_simulator.demo.drawn.cells import Options, in_unit
from pyrometer_simulator.demo.drawn.queries import QueryPages, has_pages
from pyrometer_simulator.demo.drawn.server import DrawnBoards
from pyrometer_simulator.demo.drawn.tables import rows_of
from pyrometer_simulator.http_server import HttpServer, Request, Response, json_response
from pyrometer_simulator.ports import free_port
from pyrometer_simulator.shipped import project_folder

FOLDER = project_folder() / "dashboards/json"
UIDS = [json.loads(path.read_text())["uid"] for path in sorted(FOLDER.glob("*.json"))]
LABELS = {"cluster": "c1", "node": "gpu-003", "gpu": "5", "run": "llama", "rack": "r01", "part": "<b>forward</b>"}


class Prometheus:
    """Answers each query with `series`, or fails as told."""

    def __init__(self) -> None:
        self.series: list[dict[str, Any]] = []
        self.status = 200
        self.refuse = "nothing of the kind"
        self.asked: list[str] = []

    def respond(self, request: Request) -> Response:
        self.asked.append(request.body.decode())
        if self.status != 200:
            return Response(b"busy", self.status)
        if self.refuse in self.asked[-1]:
            return Response(b"bad", 422)
        kind, samples = ("matrix", "values") if request.path.endswith("range") else ("vector", "value")
        result = [
            {
                "metric": each,
                samples: [[1000 + 5 * n, str(n)] for n in range(9)] if samples == "values" else [1040, "0.32"],
            }
            for each in self.series
        ]
        return json_response({"status": "success", "data": {"resultType": kind, "result": result}})


@pytest.fixture
def prometheus() -> Iterator[tuple[Prometheus, str]]:
    fake = Prometheus()
    with HttpServer(fake.respond) as server:
        yield fake, server.url


@pytest.fixture
def drawn(prometheus: tuple[Prometheus, str]) -> Iterator[str]:
    port = free_port()
    with DrawnBoards(FOLDER, prometheus[1], port):
        yield f"http://127.0.0.1:{port}"


def page(url: str) -> str:
    with urllib.request.urlopen(url, timeout=20) as answer:  # noqa: S310  our own loopback address
        return str(answer.read().decode())


@pytest.mark.parametrize("uid", UIDS)
def test_every_board_is_drawn_with_and_without_data(uid: str, drawn: str, prometheus: tuple[Prometheus, str]) -> None:
    empty = page(f"{drawn}/d/{uid}")
    assert "no data" in empty
    prometheus[0].series = [{"__name__": "x", **LABELS}, {"__name__": "x", **LABELS, "node": "gpu-004"}]
    full = page(f"{drawn}/d/{uid}?from=1000000&to=1040000&var-cluster=c1")
    assert "Prometheus:" not in full
    assert "<b>forward</b>" not in full
    assert len(full) > len(empty)


def test_a_prometheus_that_fails_is_said_in_the_page(drawn: str, prometheus: tuple[Prometheus, str]) -> None:
    prometheus[0].status = 503
    with pytest.raises(urllib.error.HTTPError, match="502") as caught:
        page(f"{drawn}/")
    assert b"Prometheus answered with status 503" in caught.value.read()


def test_one_query_that_fails_leaves_the_other_panels(drawn: str, prometheus: tuple[Prometheus, str]) -> None:
    prometheus[0].series, prometheus[0].refuse = [LABELS], "useful_ratio24h"
    whole = page(f"{drawn}/d/pyrometer-overview")
    assert whole.count("Prometheus answered with status 422") == 1
    assert whole.count('class="stat"') > 5


def test_variables_are_filled_in(drawn: str, prometheus: tuple[Prometheus, str]) -> None:
    prometheus[0].series = [LABELS]
    page(f"{drawn}/d/pyrometer-node?var-node=gpu-007")
    assert any("gpu-007" in query for query in prometheus[0].asked)
    assert not any("%24cluster" in query or "%24%7B" in query for query in prometheus[0].asked)


def series(value: float, **labels: str) -> Series:
    return Series(labels, ((0.0, value),))


def test_rows_of_several_queries_are_joined_by_what_they_share() -> None:
    answers = {"A": [series(1, run="a"), series(2, run="b")], "B": [series(3, run="b", who="gpu-1")]}
    assert rows_of(answers, []) == [
        {"run": "a", "Value #A": 1},
        {"run": "b", "who": "gpu-1", "Value #A": 2, "Value #B": 3},
    ]


def test_columns_are_renamed_ordered_and_left_out() -> None:
    organize = {"indexByName": {"Value": 0, "run": 1}, "renameByName": {"Value": "MFU"}, "excludeByName": {"job": True}}
    rows = rows_of({"A": [series(0.4, run="a", job="node")]}, [{"id": "organize", "options": organize}])
    assert [list(row.items()) for row in rows] == [[("MFU", 0.4), ("run", "a")]]


def test_a_matrix_has_numbered_columns_in_order() -> None:
    answers = {"A": [series(float(gpu), node="n1", gpu=str(gpu)) for gpu in (10, 2)]}
    matrix = {"rowField": "node", "columnField": "gpu", "valueField": "Value"}
    (row,) = rows_of(answers, [{"id": "groupingToMatrix", "options": matrix}])
    assert list(row.items()) == [("node\\gpu", "n1"), ("2", 2.0), ("10", 10.0)]


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [(0.3217, "percentunit", "32.2 %"), (93, "celsius", "93 °C"), (4e11, "bps", "400 Gb/s"), (90, "s", "1.5 min"),
     (0.05, "s", "50 ms"), (1234.5, "locale", "1,234.5"), (3.18, "suffix:/s", "3.18/s"),
     (float("nan"), "s", "no data")],
)  # fmt: skip
def test_values_have_their_unit(value: float, unit: str, text: str) -> None:
    assert in_unit(value, unit) == text


def test_words_stand_for_values_and_colours_follow_thresholds() -> None:
    steps = [{"color": "grey", "value": None}, {"color": "red", "value": 1}]
    words = {"type": "value", "options": {"-1": {"text": "none missing", "color": "grey"}}}
    options = Options({"defaults": {"thresholds": {"steps": steps}, "mappings": [words], "noValue": "nobody looked"}})
    assert options.cell("x", 2.0, always_coloured=True).colour == "red"
    assert options.cell("x", -1.0).text == "none missing"
    assert options.cell("x", None).text == "nobody looked"


def test_overview_is_the_first_board(drawn: str) -> None:
    assert page(f"{drawn}/").index(">Overview<") < page(f"{drawn}/").index(">Alerts<")


def test_alerts_and_queries_have_pages_at_the_addresses_of_links(prometheus: tuple[Prometheus, str]) -> None:
    prometheus[0].series = [{"alertname": "NicLinkDown", "alertstate": "firing", **LABELS}]
    with QueryPages(prometheus[1], "/bin/amtool --alertmanager.url=x").server(0) as server:
        alerts = page(f"{server.url}/#/alerts?filter=x")
        assert "NicLinkDown" in alerts
        assert "/bin/amtool --alertmanager.url=x silence add" in alerts
        drawn = page(
            f"{server.url}/graph?g0.expr=up%7Ba%3D%22%3Cb%3E%22%7D&g0.range_input=30m&g0.end_input=2026-01-01+10%3A00%3A00"
        )
        assert "<polyline" in drawn
        assert "<b>&quot;" not in drawn
        prometheus[0].refuse = "up"
        assert "Prometheus answered with status 422" in page(f"{server.url}/graph?g0.expr=up&g0.range_input=x")


def test_a_server_without_pages_is_told_from_one_with_them() -> None:
    answers = {
        "prometheus 3": {"/query": 200}, "debian's prometheus": {"/": 302}, "alertmanager": {"/": 200},
        "debian's alertmanager": {"/": -1}, "nothing": {},
    }  # fmt: skip
    found = {}
    for name, statuses in answers.items():
        apology = b"The package does not include a web\napplication"

        def respond(request: Request, statuses: dict[str, int] = statuses, apology: bytes = apology) -> Response:
            status = statuses.get(request.path, 404)
            return Response(apology if status == -1 else b"page", abs(status) if status != -1 else 200)

        with HttpServer(respond) as server:
            found[name] = has_pages(server.url)
    assert found == dict(zip(answers, (True, False, True, False, False), strict=True))
