"""The web server with TLS, under friendly and unfriendly clients. Real sockets on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from pathlib import Path
from typing import Any

import pytest

from pyrometer_kit import http_server
from pyrometer_kit.http_message import Request, Response, text
from pyrometer_kit.webconfig import WebConfig, load

Serving = Any


async def hello(_: Request) -> Response:
    return text(200, "hello")


async def large(_: Request) -> Response:
    return Response(200, b"0123456789abcdef" * 4096)


ROUTES = {"/": hello, "/large": large}


def tls_config(folder: Path, certificate: tuple[Path, Path]) -> WebConfig:
    cert, key = certificate
    (folder / "web.yml").write_text(f"tls_server_config: {{cert_file: {cert}, key_file: {key}}}")
    return load(str(folder / "web.yml"))


async def test_tls_and_silent_tls_clients(
    serving: Serving, certificate: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "HEADER_SECONDS", 3.0)
    trust = ssl.create_default_context(cafile=str(certificate[0]))

    async with serving(ROUTES, tls_config(tmp_path, certificate)) as s:
        silent = [await s.connect() for _ in range(100)]
        began = asyncio.get_running_loop().time()
        client = await s.connect(ssl=trust)
        assert (await client.get())[0] == 200
        assert (await client.get())[0] == 200
        assert asyncio.get_running_loop().time() - began < http_server.HEADER_SECONDS
        assert all(await asyncio.gather(*(one.ended(15) for one in silent)))
        plain = await s.connect()
        plain.send(b"GET / HTTP/1.1\r\n\r\n")
        assert await plain.ended(15)


async def test_with_tls_an_answer_ends_when_the_client_has_it(
    serving: Serving, certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    trust = ssl.create_default_context(cafile=str(certificate[0]))

    async with serving(ROUTES, tls_config(tmp_path, certificate)) as s:
        for path in ("/", "/large"):
            client = await s.connect(ssl=trust)
            assert (await client.get(path))[0] == 200
            assert (await client.get(path, Connection="close"))[0] == 200
            assert await client.ended(http_server.WRITE_SECONDS / 2)


async def test_with_tls_clients_without_a_handshake_count_and_make_room(
    serving: Serving, certificate: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "MAX_TLS_CONNECTIONS", 10)
    trust = ssl.create_default_context(cafile=str(certificate[0]))
    hello = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        trust.wrap_bio(ssl.MemoryBIO(), hello, server_hostname="127.0.0.1").do_handshake()
    begun = hello.read()

    async with serving(ROUTES, tls_config(tmp_path, certificate)) as s:
        for number in range(60):
            client = await s.connect()
            client.send(begun if number % 2 else b"")
            await asyncio.sleep(0)
            assert len(s.server._connections) <= 10
        assert (await (await s.connect(ssl=trust)).get())[0] == 200


async def test_with_tls_a_client_that_has_made_room_gets_no_handshake_though_its_first_byte_comes_at_that_moment(
    serving: Serving, certificate: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "MAX_TLS_CONNECTIONS", 1)
    monkeypatch.setattr(http_server, "HEADER_SECONDS", 60.0)
    real = http_server.until_readable

    async def forgetful(*arguments: Any) -> None:
        """Lose the cancellation, as `asyncio.wait_for` does when it comes with the result."""
        with contextlib.suppress(asyncio.CancelledError):
            await real(*arguments)

    monkeypatch.setattr(http_server, "until_readable", forgetful)
    trust = ssl.create_default_context(cafile=str(certificate[0]))

    async with serving(ROUTES, tls_config(tmp_path, certificate)) as s:
        first = await s.connect()
        await s.until(lambda: s.server._connections)
        second = await s.connect(ssl=trust)
        assert (await second.get())[0] == 200
        assert await first.ended(10)
