"""Questions to a Prometheus that answers, refuses, hangs, trickles, and talks nonsense."""

from __future__ import annotations

import argparse
import http.server
import json
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs

import pytest

from pyrometer_exporters.cluster.main import main
from pyrometer_kit import prometheus as module
from pyrometer_kit.prometheus import HttpPrometheus, PrometheusError, Series, answer, prometheus_url
from pyrometer_kit.promql import matching, quoted

VECTOR = {
    "status": "success",
    "data": {"resultType": "vector", "result": [{"metric": {"a": "b"}, "value": [1.5, "3"]}]},
}
MATRIX = {
    "status": "success",
    "data": {"resultType": "matrix", "result": [{"metric": {}, "values": [[1, "1"], [2, "NaN"], [3, "+Inf"]]}]},
}


class Server:
    def __init__(self) -> None:
        self.body = json.dumps(VECTOR).encode()
        self.status = 200
        self.pause = 0.0
        self.forms: list[tuple[str, dict[str, list[str]]]] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = self.rfile.read(int(self.headers["Content-Length"])).decode()
                outer.forms.append((self.path, parse_qs(form)))
                self.send_response(outer.status)
                self.end_headers()
                for start in range(0, len(outer.body), 100) if outer.pause else [0]:
                    try:
                        self.wfile.write(outer.body[start : start + 100] if outer.pause else outer.body)
                        self.wfile.flush()
                    except OSError:
                        return
                    time.sleep(outer.pause)

            def log_message(self, *args: Any) -> None:
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/prefix/"
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.http.shutdown()
    made.http.server_close()


def test_an_answer_is_read_with_its_own_times(server: Server) -> None:
    found = HttpPrometheus(server.url)
    assert found.instant("up", 12.3456) == [Series({"a": "b"}, ((1.5, 3.0),))]
    assert found.range("up", 1.0, 2.0, 0.5)
    (path, form), (path_of_range, form_of_range) = server.forms
    assert (path, path_of_range) == ("/prefix/api/v1/query", "/prefix/api/v1/query_range")
    assert (form["query"], form["time"], form["timeout"]) == (["up"], ["12.346"], ["10s"])
    assert (form_of_range["start"], form_of_range["end"], form_of_range["step"]) == (["1.000"], ["2.000"], ["0.500"])


def test_a_matrix_has_all_its_points() -> None:
    (series,) = answer(json.dumps(MATRIX).encode())
    assert [at for at, _ in series.points] == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"[]", b"null", b"{}", b'{"status": "success"}', b'{"status": "success", "data": {"result": [3]}}',
     b'{"status": "success", "data": {"result": [{"metric": {}, "values": [[1]]}]}}', b"[" * 100_000, b"\xff"],
)  # fmt: skip
def test_what_is_no_answer_is_one_line(server: Server, body: bytes) -> None:
    server.body = body
    with pytest.raises(PrometheusError) as caught:
        HttpPrometheus(server.url).instant("up", 0)
    assert caught.value.reason == "bad_answer"
    assert "\n" not in str(caught.value)


def test_a_refusal_is_told_in_prometheus_words(server: Server) -> None:
    server.status, server.body = 400, json.dumps({"status": "error", "error": "parse error: x"}).encode()
    with pytest.raises(PrometheusError, match="parse error: x") as caught:
        HttpPrometheus(server.url).instant("up{", 0)
    assert caught.value.reason == "refused"


def test_an_answer_that_trickles_or_never_comes_ends_at_the_deadline(server: Server) -> None:
    server.body, server.pause = b"x" * 100_000, 0.05
    began = time.monotonic()
    with pytest.raises(PrometheusError) as caught:
        HttpPrometheus(server.url, seconds=0.3).instant("up", 0)
    assert caught.value.reason == "deadline"
    assert time.monotonic() - began < 10


def test_an_answer_that_is_too_large_is_not_read_to_its_end(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ANSWER_BYTES", 1000)
    server.body = b"x" * 100_000
    with pytest.raises(PrometheusError) as caught:
        HttpPrometheus(server.url).instant("up", 0)
    assert caught.value.reason == "too_large"


def test_a_prometheus_that_is_away_is_a_reason(server: Server) -> None:
    server.http.shutdown()
    server.http.server_close()
    with pytest.raises(PrometheusError) as caught:
        HttpPrometheus(server.url).instant("up", 0)
    assert caught.value.reason == "econnrefused"


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
    assert matching("node", ["a.b", 'c"|d']) == 'node=~"a\\\\.b|c\\"\\\\|d"'
