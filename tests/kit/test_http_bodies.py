"""Bodies of requests: what a proxy might read in another way is refused, and all together they are bounded."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pyrometer_kit import http_body
from pyrometer_kit.http_message import Request, Response, Route, parse_request, text

Serving = Any
KIB = 1024


async def length_of(request: Request) -> Response:
    return text(200, str(len(request.body)))


@pytest.mark.parametrize(
    "lines",
    [
        b"Content-Length: 5\r\nContent-Length: 0",
        b"Content-Length: 5\r\nTransfer-Encoding: chunked",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        b"Content-Length : 5",
        b"X: a\r\n Content-Length: 5",
        b"X: a\r\n\tContent-Length: 5",
        b"X: a\nContent-Length: 5",
        b"X: a\rContent-Length: 5",
        b"X: a\0b",
        b": 5",
        b"Content-Length: +5",
        b"Content-Length: 5, 5",
        b"Content-Length: 0x5",
        b"Content-Length:",
        b"Host: a\r\nHost: b",
    ],
)
async def test_a_header_that_two_readers_may_understand_in_two_ways_ends_the_connection(
    serving: Serving, lines: bytes
) -> None:
    async with serving({"/": Route(length_of, ("POST",), 100)}) as s:
        client = await s.connect()
        client.send(b"POST / HTTP/1.1\r\n" + lines + b"\r\n\r\nabcdeGET /smuggled HTTP/1.1\r\n\r\n")
        assert (await client.answer())[0] == 400
        assert await client.reader.read() == b"", "what followed was taken for a request"


def test_a_header_line_ends_only_where_http_ends_it() -> None:
    found = parse_request(b"GET / HTTP/1.1\r\nX: a\x0bHost: b\x85Host: c\r\n\r\n")
    assert found.headers == {"x": "a\x0bHost: b\x85Host: c"}


async def test_large_bodies_share_their_room_and_give_it_back(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_body, "MAX_BODIES_BYTES", 300 * KIB)
    monkeypatch.setattr(http_body, "UNCOUNTED_BYTES", 10 * KIB)
    begun, gate = asyncio.Event(), asyncio.Event()

    async def waits(request: Request) -> Response:
        begun.set()
        await gate.wait()
        return await length_of(request)

    async with serving({"/": Route(waits, ("POST",), 1000 * KIB)}) as s:

        async def post(size: int) -> Any:
            client = await s.connect()
            client.send(b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % size + bytes(size))
            return client

        first = await post(200 * KIB)
        await begun.wait()
        second = await post(200 * KIB)
        assert (await second.answer())[0] == 503
        ordinary = [await post(10 * KIB) for _ in range(20)]
        gate.set()
        assert [(await one.answer())[2] for one in ordinary] == [b"10240\n"] * 20
        assert (await first.answer())[2] == b"204800\n"
        third = await post(200 * KIB)
        assert (await third.answer())[0] == 200
        half = await s.connect()
        half.send(b"POST / HTTP/1.1\r\nContent-Length: 300000\r\n\r\n" + bytes(250_000))
        await s.until(lambda: s.server._room._taken == 250_000 - 10 * KIB)
        connections = len(s.server._connections)
        half.reset()
        await s.until(lambda: len(s.server._connections) < connections)
        last = await post(290 * KIB)
        assert (await last.answer())[0] == 200, "half a body kept its room"
