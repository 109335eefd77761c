"""The server in a thread of its own, with handlers that block."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from pyrometer_kit.auth import BasicAuth, BearerTokens
from pyrometer_kit.errors import UsageError
from pyrometer_kit.flags import Address
from pyrometer_kit.http_message import Request, Response, Route, text
from pyrometer_kit.http_thread import ServerThread
from pyrometer_kit.webconfig import WebConfig

LOOPBACK = Address("127.0.0.1", 0)
HASH = b"$2b$04$FQ5ihQrRSVb58kwDexrXpeSQwbRk8sO9vRgeFFWjcD4KrPBGGXpyu"  # of a password that nobody knows


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def echo(request: Request) -> Response:
    return text(200, f"{len(request.body)} {request.oversized}")


@pytest.fixture
def rejected() -> list[int]:
    return []


@pytest.fixture
def server(rejected: list[int]) -> Iterator[ServerThread]:
    routes = {
        "/": Route(echo),
        "/post": Route(echo, ("POST", "PUT"), max_body=100_000),
        "/any": Route(echo, ("POST",), max_body=1000, takes_oversized=True),
        "/hook": Route(echo, ("POST",), max_body=1000, tokens=BearerTokens(["one", "two"])),
    }
    made = ServerThread(routes, WebConfig(auth=BasicAuth({})), lambda: rejected.append(1))
    made.start(LOOPBACK)
    yield made
    made.stop()


def ask(server: ServerThread, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return response.status, response.read().decode().strip()
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("method", "path", "size", "expected"),
    [
        ("POST", "/post", 100_000, (200, "100000 False")),
        ("PUT", "/post", 0, (200, "0 False")),
        ("POST", "/post", 100_001, (413, "the body is larger than 100000 bytes")),
        ("POST", "/any", 1_000_000, (200, "0 True")),
        ("GET", "/post", 0, (405, "only POST and PUT")),
        ("POST", "/", 1, (405, "only GET and HEAD")),
        ("POST", "/", 17 << 20, (413, "too large: no body is expected here")),
        ("GET", "/nothing", 0, (404, "not found")),
    ],
)
def test_bodies_and_methods(server: ServerThread, method: str, path: str, size: int, expected: tuple[int, str]) -> None:
    assert ask(server, method, path, b"x" * size) == expected


def test_a_connection_goes_on_after_a_body(server: ServerThread) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.connect()
    first = connection.sock
    for size in (5, 50_000, 100_001, 7):
        connection.request("POST", "/post", b"x" * size)
        connection.getresponse().read()
    assert connection.sock is first
    connection.close()


def test_a_client_may_wait_to_be_asked_for_its_body(server: ServerThread) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
        client.sendall(b"POST /post HTTP/1.1\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
        assert client.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(b"abc")
        assert client.recv(1000).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        (b"POST /post HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nTrailer: x\r\n\r\n", 200),
        (b"POST /post HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", 400),
        (b"POST /post HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n", 400),
        (b"POST /post HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 2000, 400),
        (b"POST /post HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
        (b"POST /post HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\nabc", 400),
        (b"POST /post HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST /post HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", 413),
        (b"POST /post HTTP/1.1\r\nContent-Length\r\n\r\n", 400),
    ],
)
def test_framing_of_bodies(server: ServerThread, request_text: bytes, status: int) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
        client.sendall(request_text)
        assert client.recv(1000).startswith(f"HTTP/1.1 {status} ".encode())


def test_a_token_opens_its_route_and_no_other(server: ServerThread, rejected: list[int]) -> None:
    assert ask(server, "POST", "/hook", Authorization="Bearer two")[0] == 200
    assert ask(server, "POST", "/hook")[0] == 401
    assert ask(server, "POST", "/hook", Authorization="Bearer three")[0] == 401
    assert len(rejected) == 2
    server._server._config.auth = BasicAuth({"me": HASH})
    assert ask(server, "POST", "/hook", Authorization="Bearer one")[0] == 200
    assert ask(server, "GET", "/", Authorization="Bearer one")[0] == 401


def test_a_port_in_use_is_one_line_and_leaves_no_thread(server: ServerThread) -> None:
    before = set(threading.enumerate())
    with pytest.raises(UsageError, match="in use by another program"):
        ServerThread({}, WebConfig()).start(Address("127.0.0.1", server.port))
    assert set(threading.enumerate()) <= before


def test_a_connection_that_came_while_the_server_stopped_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    server = ServerThread({"/": Route(echo)}, WebConfig())
    server.start(LOOPBACK)

    async def missed_it() -> None:
        """As when a TLS handshake ends only after the server looked at what is open."""
        assert server._server._server is not None
        server._server._server.close()

    with socket.create_connection(("127.0.0.1", server.port), timeout=5):
        until(lambda: server._server._connections)
        monkeypatch.setattr(server._server, "stop", missed_it)
        server._server._stopping = True
        server.stop()
        assert not server._server._connections
