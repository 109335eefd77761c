"""Questions to a Prometheus that answers, refuses, hangs, trickles, and talks nonsense."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from urllib.parse import parse_qs

import pytest

from pyrometer_exporters.cluster.main import main
from pyrometer_kit.prometheus import HttpPrometheus, PrometheusError, Series, answer, prometheus_url
from pyrometer_kit.promql import matching, quoted
from pyrometer_simulator.strange_server import Answer, StrangeServer, begins_without_end, says

VECTOR = {
    "status": "success",
    "data": {"resultType": "vector", "result": [{"metric": {"a": "b"}, "value": [1.5, "3"]}]},
}
MATRIX = {
    "status": "success",
    "data": {"resultType": "matrix", "result": [{"metric": {}, "values": [[1, "1"], [2, "NaN"], [3, "+Inf"]]}]},
}


@pytest.fixture
def server() -> Iterator[StrangeServer]:
    with StrangeServer(says(json.dumps(VECTOR).encode())) as server:
        yield server


def test_an_answer_is_read_with_its_own_times(server: StrangeServer) -> None:
    prometheus = HttpPrometheus(f"http://{server.place}/prefix/")
    assert prometheus.instant("up", 12.3456) == [Series({"a": "b"}, ((1.5, 3.0),))]
    assert prometheus.range("up", 1.0, 2.0, 0.5)
    prometheus.close()
    assert [asked[":path"] for asked in server.asked] == ["/prefix/api/v1/query", "/prefix/api/v1/query_range"]
    form, form_of_range = (parse_qs(asked[":body"]) for asked in server.asked)
    assert (form["query"], form["time"], form["timeout"]) == (["up"], ["12.346"], ["10s"])
    assert (form_of_range["start"], form_of_range["end"], form_of_range["step"]) == (["1.000"], ["2.000"], ["0.500"])


@pytest.mark.parametrize("partial", [{"isPartial": True}, {"warnings": ["store-3 did not answer"]}])
def test_a_partial_answer_is_none_to_who_needs_all_of_it(partial: dict[str, object]) -> None:
    body = json.dumps(VECTOR | partial).encode()
    assert len(answer(body)) == 1
    with pytest.raises(PrometheusError) as caught:
        answer(body, whole=True)
    assert caught.value.reason == "partial"


def test_it_says_what_time_it_is(server: StrangeServer) -> None:
    prometheus = HttpPrometheus(f"http://{server.place}")
    assert prometheus.now() == 3.0
    prometheus.close()
    assert "time" not in parse_qs(server.asked[0][":body"])


def test_a_matrix_has_all_its_points() -> None:
    (series,) = answer(json.dumps(MATRIX).encode())
    assert [at for at, _ in series.points] == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"[]", b"null", b"{}", b'{"status": "success"}', b'{"status": "success", "data": {"result": [3]}}',
     b'{"status": "success", "data": {"result": [{"metric": {}, "values": [[1]]}]}}', b"[" * 100_000, b"\xff"],
)  # fmt: skip
def test_what_is_no_answer_is_one_line(body: bytes) -> None:
    with pytest.raises(PrometheusError) as caught:
        answer(body)
    assert caught.value.reason == "bad_answer"
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("strange", "reason", "said"), [
    (says(b'{"status": "error", "error": "parse error: x"}', 400), "refused", "parse error: x"),
    (says(b"no entry", 401), "http_401", "status 401"),
    (begins_without_end(), "deadline", "Prometheus at http://127.0.0.1:.* no answer in time"),
])  # fmt: skip
def test_an_error_has_a_reason_and_never_the_password(
    server: StrangeServer, strange: Answer, reason: str, said: str
) -> None:
    server.answer = strange
    with pytest.raises(PrometheusError, match=said) as caught:
        HttpPrometheus(f"http://me:hunter2@{server.place}", seconds=0.5).instant("up{", 0)
    assert caught.value.reason == reason
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["", "localhost:9090", "ftp://x", "http://", "http://u:secret@x", "http://x:99999", "http://["]
)
def test_a_wrong_url_is_one_line_and_no_password_is_repeated(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        prometheus_url(url)
    with pytest.raises(SystemExit) as caught:
        main([f"--prometheus.url={url}"])
    said = capsys.readouterr().err
    assert caught.value.code == 2
    assert said.count("\n") == 1
    assert "secret" not in said


def test_promql_values_are_escaped() -> None:
    assert quoted('a"}\n\\') == '"a\\"}\\n\\\\"'
    assert quoted("\U0001f525\x01\ufffd") == '"\U0001f525\x01\\ufffd"'
    assert matching("node", ["a.b", 'c"|d']) == 'node=~"a\\\\.b|c\\"\\\\|d"'
