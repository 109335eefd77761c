"""The web server under friendly and unfriendly clients. Real sockets on loopback."""

from __future__ import annotations

import asyncio
import base64
import errno
import gzip
import socket
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import bcrypt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pyrometer_kit import http_listener, http_server
from pyrometer_kit.auth import BasicAuth
from pyrometer_kit.errors import UsageError
from pyrometer_kit.flags import Address
from pyrometer_kit.http_message import Handler, Request, Response, parse_target, text
from pyrometer_kit.http_server import WebServer
from pyrometer_kit.webconfig import WebConfig

Serving = Any


async def hello(request: Request) -> Response:
    return text(200, f"hello {request.query.get('name', '')}".strip())


async def large(_: Request) -> Response:
    return Response(200, b"0123456789abcdef" * 4096)


async def breaks(_: Request) -> Response:
    raise ValueError("secret detail")


ROUTES = {"/": hello, "/large": large, "/breaks": breaks}


def waits_for(gate: asyncio.Event, begun: asyncio.Semaphore | None = None) -> Handler:
    """Answer once ``gate`` is set; release ``begun`` for each request that waits."""

    async def waits(_: Request) -> Response:
        if begun is not None:
            begun.release()
        await gate.wait()
        return text(200, "x")

    return waits


async def test_get_and_head(serving: Serving) -> None:
    async with serving(ROUTES) as s:
        status, headers, body = await s.get("/?name=a%20b")
        assert (status, body) == (200, b"hello a b\n")
        assert headers["x-content-type-options"] == "nosniff"
        status, headers, body = await s.get("/large", "HEAD")
        assert (status, headers["content-length"], body) == (200, "65536", b"")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/nothing", 404), ("GET", "//", 404), ("GET", "/../etc/passwd", 404), ("POST", "/", 405),
     ("PUT", "/", 405), ("DELETE", "/nothing", 405), ("get", "/", 405), ("GET", "/breaks", 500),
     ("GET", "http://x/", 200), ("GET", "http://evil.example/", 400), ("GET", "//x/large", 404), ("GET", "*", 404),
     ("GET", "/?" + "&".join(f"a{n}=1" for n in range(100)), 400), ("GET", "//[", 404), ("GET", "http://[/", 400)],
)  # fmt: skip
async def test_statuses(serving: Serving, method: str, path: str, status: int) -> None:
    async with serving(ROUTES) as s:
        found, headers, body = await s.get(path, method)
        assert found == status
        assert b"secret" not in body
        assert headers.get("allow") == ("GET, HEAD" if status == 405 else None)


@given(st.text("/ab=&?%2;+#:[.", max_size=20).map("/".__add__))
@example("/a?b=1&b=2&c=&d")
def test_paths_and_parameters_are_those_that_urllib_finds(target: str) -> None:
    url = urlsplit(f"http://x{target}")
    assert parse_target(target, "x") == (url.path, dict(parse_qsl(url.query)))


async def test_a_scraper_that_says_something_else_the_next_time_is_heard(serving: Serving) -> None:
    async with serving(ROUTES) as s:
        client = await s.connect()
        found = [(await client.get(f"/?name={name}"))[2] for name in ("a", "a", "b", "a")]
        assert found == [f"hello {name}\n".encode() for name in ("a", "a", "b", "a")]


@pytest.mark.parametrize(
    "request_text", [b"nonsense\r\n\r\n", b"GET /\r\n\r\n", b"GET / HTTP/2.0\r\n\r\n", b"\x16\x03\x01\x02\x00\r\n\r\n"]
)
async def test_what_is_no_request_gets_400(serving: Serving, request_text: bytes) -> None:
    async with serving(ROUTES) as s:
        client = await s.connect()
        client.send(request_text)
        assert (await client.answer())[0] == 400
        assert await client.ended()


async def test_a_header_too_large_gets_431_though_it_never_ends(serving: Serving) -> None:
    async with serving(ROUTES) as s:
        client = await s.connect()
        client.send(b"GET / HTTP/1.1\r\nX: " + b"x" * 40_000)
        assert (await client.answer())[0] == 431
        assert await client.ended()


async def test_half_a_request_and_a_hang_up_run_nothing(serving: Serving) -> None:
    calls = []

    async def counts(_: Request) -> Response:
        calls.append(1)
        return text(200, "x")

    async with serving({"/": counts}) as s:
        for part in (b"", b"G", b"GET / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nX-a: "):
            client = await s.connect()
            client.send(part)
            client.writer.write_eof()
            assert await client.ended()
        assert calls == []
        assert (await s.get())[0] == 200


async def test_a_slow_header_has_one_deadline_in_all(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "HEADER_SECONDS", 0.3)

    async with serving(ROUTES) as s:
        silent, dripping = await s.connect(), await s.connect()

        async def drip() -> None:
            for byte in b"GET / HTTP/1.1\r\nX-a: " + b"x" * 100:
                dripping.send(bytes([byte]))
                await asyncio.sleep(0.05)

        task = asyncio.ensure_future(drip())
        assert await silent.ended(2)
        assert await dripping.ended(2)
        task.cancel()
        assert (await s.get())[0] == 200


async def test_keep_alive_and_pipelined_requests(serving: Serving) -> None:
    async with serving(ROUTES) as s:
        client = await s.connect()
        for _ in range(3):
            assert (await client.get())[0] == 200
        client.send(b"GET / HTTP/1.1\r\n\r\n" * 2)
        assert [(await client.answer())[0] for _ in range(2)] == [200, 200]
        _, headers, _ = await client.get(Connection="close")
        assert headers["connection"] == "close"
        assert await client.ended(3)


async def test_who_sends_far_ahead_has_to_wait_and_gets_all_its_answers(serving: Serving) -> None:
    gate = asyncio.Event()
    async with serving({"/": waits_for(gate)}) as s:
        patient, flood = await s.connect(), await s.connect()
        patient.send(b"GET / HTTP/1.1\r\n\r\n" * 5000)
        flood.send(b"GET / HTTP/1.1\r\n\r\n" * 2_000_000)
        left = await s.until_still(flood.writer.transport.get_write_buffer_size)
        assert left > 0, "nobody keeps forty megabytes for it"
        flood.reset()
        gate.set()
        assert {(await patient.answer())[0] for _ in range(5000)} == {200}


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.0\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 23\r\n",
        b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n",
    ],
)
async def test_a_body_is_never_taken_for_the_next_request(serving: Serving, head: bytes) -> None:
    async with serving(ROUTES) as s:
        client = await s.connect()
        client.send(head + b"\r\nGET /breaks HTTP/1.1\r\n\r\n")
        _, headers, _ = await client.answer()
        assert headers["connection"] == "close"
        assert await client.reader.read() == b""


async def test_gzip_where_it_pays_and_is_asked_for(serving: Serving) -> None:
    async with serving(ROUTES) as s:
        _, headers, body = await s.get("/large", Accept_Encoding="gzip;q=1.0,*;q=0.5")
        assert headers["content-encoding"] == "gzip"
        assert gzip.decompress(body) == (await s.get("/large"))[2]
        assert "content-encoding" not in (await s.get("/", Accept_Encoding="gzip"))[1]


@pytest.mark.parametrize(
    ("accepted", "zipped"),
    [
        ("gzip;q=0", False), ("*;q=0", False), ("gzip;q=0, *;q=1", False), ("identity", False), ("", False),
        ("x-gzip", False), ("gzip;q=nonsense", False), ("GZIP", True), ("br, *", True), ("deflate, gzip;q=0.001", True),
    ],
)  # fmt: skip
async def test_gzip_that_is_refused_is_not_sent(serving: Serving, accepted: str, zipped: bool) -> None:
    async with serving(ROUTES) as s:
        _, headers, _ = await s.get("/large", Accept_Encoding=accepted)
        assert ("content-encoding" in headers) is zipped


async def test_silent_clients_beyond_the_cap_make_room_for_those_who_ask(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "MAX_CONNECTIONS", 10)

    async with serving(ROUTES) as s:
        for n in range(50):
            client = await s.connect()
            client.send(b"GET / HT" if n % 2 else b"")
        assert (await s.get())[0] == 200
        assert len(s.server._connections) <= 10


async def test_beyond_the_cap_of_busy_connections_the_answer_is_503(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "MAX_CONNECTIONS", 5)

    gate, begun = asyncio.Event(), asyncio.Semaphore(0)
    async with serving({"/": waits_for(gate, begun)}) as s:
        busy = [await s.connect() for _ in range(5)]
        for client in busy:
            client.send(b"GET / HTTP/1.1\r\n\r\n")
            await begun.acquire()
        one_more = await s.connect()
        assert (await one_more.answer())[0] == 503
        gate.set()
        assert [(await client.answer())[0] for client in busy] == [200] * 5
        assert (await s.get())[0] == 200


async def test_hundreds_of_half_open_clients_do_not_keep_a_scrape_out(serving: Serving) -> None:
    async with serving(ROUTES) as s:
        clients = await asyncio.gather(*(s.connect() for _ in range(300)))
        for client in clients:
            client.send(b"GET / HTTP/1.1\r\nX-a: ")
        began = asyncio.get_running_loop().time()
        assert (await s.get())[0] == 200
        assert asyncio.get_running_loop().time() - began < http_server.HEADER_SECONDS


def header(password: str) -> str:
    return "Basic " + base64.b64encode(f"prom:{password}".encode()).decode()


async def test_basic_auth_covers_every_path(serving: Serving, caplog: pytest.LogCaptureFixture) -> None:
    config = WebConfig(auth=BasicAuth({"prom": bcrypt.hashpw(b"right", bcrypt.gensalt(4))}))

    async with serving(ROUTES, config) as s:
        for path in (*ROUTES, "/nothing"):
            for wrong in ({}, {"Authorization": header("wrong")}, {"Authorization": "Basic \xe9"}):
                status, headers, _ = await s.get(path, **wrong)
                assert status == 401
                assert headers["www-authenticate"].startswith("Basic")
        assert (await s.get("/", "POST"))[0] == 401
        for _ in range(3):
            assert (await s.get(Authorization=header("right")))[0] == 200
    assert "right" not in caplog.text
    assert "wrong" not in caplog.text


async def test_without_a_descriptor_for_one_more_it_goes_on_when_there_is_one(
    serving: Serving, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(http_listener, "AGAIN_SECONDS", 0.05)

    class Exhausted(socket.socket):
        left = 2

        def accept(self) -> tuple[socket.socket, Any]:
            if Exhausted.left:
                Exhausted.left -= 1
                raise OSError(errno.EMFILE, "Too many open files")
            return super().accept()

    async with serving(ROUTES) as s:
        listener = s.server._server
        (old,) = listener._sockets
        asyncio.get_running_loop().remove_reader(old)
        listener._sockets = [Exhausted(fileno=old.detach())]
        listener._sockets[0].settimeout(0)
        listener._resume(listener._sockets[0])
        assert (await s.get())[0] == 200
    assert caplog.text.count("Too many open files") == 2


async def test_a_request_under_way_is_answered_when_the_server_stops(serving: Serving) -> None:
    gate, begun = asyncio.Event(), asyncio.Semaphore(0)
    async with serving({"/": waits_for(gate, begun)}) as s:
        idle, busy = await s.connect(), await s.connect()
        busy.send(b"GET / HTTP/1.1\r\n\r\n")
        await begun.acquire()
        stopping = asyncio.create_task(s.server.stop())
        assert await idle.ended(30), "an idle connection is closed at once"
        assert not stopping.done()
        gate.set()
        assert (await busy.answer())[2] == b"x\n"
        await stopping


@pytest.mark.parametrize(
    ("host", "why"),
    [("256.256.256.256", "can't listen on 256.256.256.256:0"), ("a..b", "can't listen on a..b:0"),
     ("192.0.2.1", "give another address"), ("no-such-host.invalid", "can't listen")],
)  # fmt: skip
async def test_where_it_cannot_listen_it_says_so_in_one_line(host: str, why: str) -> None:
    with pytest.raises(UsageError) as caught:
        await WebServer({}, WebConfig()).start(Address(host, 0))
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_a_port_in_use(serving: Serving) -> None:
    async with serving(ROUTES) as s:
        with pytest.raises(UsageError, match="in use by another program"):
            await WebServer({}, WebConfig()).start(Address("127.0.0.1", s.port))
