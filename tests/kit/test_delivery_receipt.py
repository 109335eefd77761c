"""When an answer counts as delivered: the cursors of ``/batches`` move by it, so a wrong yes loses batches."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pyrometer_kit import http_server
from pyrometer_kit.http_message import Handler, Request, Response

Serving = Any


@pytest.fixture
def told() -> list[bool]:
    return []


@pytest.fixture
def routes(told: list[bool]) -> dict[str, Handler]:
    async def endpoint(_: Request) -> Response:
        return Response(200, b"x" * 8_000_000, delivered=told.append)

    async def small(_: Request) -> Response:
        return Response(200, b"x", delivered=told.append)

    return {"/endpoint": endpoint, "/small": small}


async def test_an_answer_is_delivered_when_the_next_request_comes(
    serving: Serving, routes: dict[str, Handler], told: list[bool]
) -> None:
    async with serving(routes) as s:
        client = await s.connect()
        await client.get("/endpoint")
        await s.until_idle()
        assert told == [], "the kernel has it: that says nothing of the client"
        await client.get("/small")
        assert told == [True]


@pytest.mark.parametrize("close", [False, True])
async def test_an_answer_is_delivered_when_the_client_hangs_up_with_nothing_unread(
    serving: Serving, routes: dict[str, Handler], told: list[bool], close: bool
) -> None:
    async with serving(routes) as s:
        client = await s.connect()
        await client.get("/small", **({"Connection": "close"} if close else {}))
        client.writer.close()
        await s.until(lambda: told)
        assert told == [True]


async def test_an_answer_is_not_delivered_to_a_scraper_that_hangs_up_instead_of_asking_again(
    serving: Serving, routes: dict[str, Handler], told: list[bool]
) -> None:
    """Prometheus after its timeout, with the answer in a buffer of its own: no reset says so."""

    async with serving(routes) as s:
        client = await s.connect()
        await client.get("/small", **{"X-Prometheus-Scrape-Timeout-Seconds": "5"})
        client.writer.close()
        await s.until(lambda: told)
        assert told == [False]


async def test_an_answer_is_delivered_to_a_scraper_that_asks_again_or_said_that_it_closes(
    serving: Serving, routes: dict[str, Handler], told: list[bool]
) -> None:
    scrape = {"X-Prometheus-Scrape-Timeout-Seconds": "5"}

    async with serving(routes) as s:
        client = await s.connect()
        await client.get("/small", **scrape)
        await client.get("/small", **scrape, Connection="close")
        client.writer.close()
        await s.until(lambda: len(told) > 1)
        assert told == [True, True]


@pytest.mark.parametrize("path", ["/endpoint", "/small"])
async def test_an_answer_is_not_delivered_to_a_client_that_hangs_up_on_it(
    serving: Serving, routes: dict[str, Handler], told: list[bool], path: str
) -> None:
    """As Prometheus does when its timeout is over: what it has not read is lost, wherever in the kernels it was."""

    async with serving(routes) as s:
        client = await s.connect()
        client.writer.transport.pause_reading()
        client.send(f"GET {path} HTTP/1.1\r\n\r\n".encode())
        await s.until(client.unread)
        client.reset()
        await s.until(lambda: told)
        assert told == [False]


async def test_an_answer_is_not_delivered_to_a_client_gone_before_it_or_asking_for_the_head_only(
    serving: Serving, told: list[bool]
) -> None:
    begun, gone = asyncio.Event(), asyncio.Event()

    async def slow(_: Request) -> Response:
        begun.set()
        await gone.wait()
        return Response(200, b"x", delivered=told.append)

    async with serving({"/": slow}) as s:
        client = await s.connect()
        client.send(b"GET / HTTP/1.1\r\n\r\n")
        await begun.wait()
        client.writer.close()
        await client.writer.wait_closed()
        gone.set()
        await s.until(lambda: told)
        assert told == [False]
        await s.get("/", "HEAD")
        await s.until(lambda: len(told) > 1)
        assert told == [False, False]


async def test_stopping_counts_an_answer_that_nobody_complained_of_as_delivered(
    serving: Serving, routes: dict[str, Handler], told: list[bool]
) -> None:
    async with serving(routes) as s:
        client = await s.connect()
        await client.get("/small")
        await s.until_idle()
        await s.server.stop()
        assert told == [True]


async def test_a_callback_that_fails_costs_nothing(serving: Serving, caplog: pytest.LogCaptureFixture) -> None:
    def fails(_: bool) -> None:
        raise ValueError

    async def endpoint(_: Request) -> Response:
        return Response(200, b"x", delivered=fails)

    async with serving({"/": endpoint}) as s:
        client = await s.connect()
        assert [(await client.get())[0] for _ in range(3)] == [200] * 3
    assert "could not record that the response was delivered" in caplog.text


async def test_a_client_that_does_not_read_is_dropped_with_what_it_did_not_read(
    serving: Serving, routes: dict[str, Handler], told: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "WRITE_SECONDS", 0.3)

    async with serving(routes) as s:
        client = await s.connect()
        client.writer.transport.pause_reading()
        client.send(b"GET /endpoint HTTP/1.1\r\n\r\n")
        await s.until(lambda: told)
        assert told == [False]
        await s.until(lambda: not s.server._connections)
        client.writer.transport.resume_reading()
        assert await client.ended(2), "close() alone would have kept eight megabytes for it"
