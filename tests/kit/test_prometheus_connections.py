"""Connections to Prometheus: kept open, replaced when stale, through proxies, with credentials."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from pyrometer_kit.prometheus import HttpPrometheus, PrometheusError

EMPTY = json.dumps({"status": "success", "data": {"resultType": "vector", "result": []}}).encode()


class Server:
    """Keeps connections open, and remembers which one each request came on."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, str, str]] = []
        self.hang_up = False
        self.status = 200
        self.body = EMPTY
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                outer.requests.append((self.client_address[1], self.path, self.headers.get("Authorization", "")))
                self.send_response(outer.status)
                self.send_header("Content-Length", str(len(outer.body)))
                self.end_headers()
                self.wfile.write(outer.body)
                self.close_connection = outer.hang_up  # without a word of it in the header

            def log_message(self, *args: Any) -> None:
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.http.server_port}"


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.http.shutdown()
    made.http.server_close()


def test_a_connection_is_used_again_and_replaced_when_the_server_closed_it(server: Server) -> None:
    prometheus = HttpPrometheus(f"http://{server.place}")
    for _ in range(3):
        prometheus.instant("up", 0)
    assert len({port for port, _, _ in server.requests}) == 1
    server.hang_up = True
    for _ in range(3):
        assert prometheus.instant("up", 0) == []
    assert len({port for port, _, _ in server.requests}) == 3
    prometheus.close()


def test_credentials_of_the_url_are_sent_and_never_shown(server: Server) -> None:
    HttpPrometheus(f"http://me:p%40ss@{server.place}").instant("up", 0)
    assert server.requests[0][2] == "Basic bWU6cEBzcw=="
    server.status, server.body = 401, b"no entry"
    with pytest.raises(PrometheusError, match="status 401") as caught:
        HttpPrometheus(f"http://me:hunter2@{server.place}").instant("up", 0)
    assert caught.value.reason == "http_401"
    with pytest.raises(PrometheusError) as caught:
        HttpPrometheus("http://me:hunter2@127.0.0.1:1").instant("up", 0)
    assert "hunter2" not in str(caught.value)


def test_a_proxy_of_the_environment_is_used_but_not_for_loopback(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"http://{server.place}")
    monkeypatch.setenv("no_proxy", "near.example")
    HttpPrometheus("http://prometheus.example:9090/base").instant("up", 0)
    assert server.requests[0][1] == "http://prometheus.example:9090/base/api/v1/query"
    HttpPrometheus(f"http://{server.place}").instant("up", 0)
    assert server.requests[1][1] == "/api/v1/query"
    with pytest.raises(PrometheusError):
        HttpPrometheus("http://near.example:1", seconds=2).instant("up", 0)
    assert len(server.requests) == 2
