"""A small HTTP server that cannot be held up: a deadline for the whole header, bounded bodies and connections, TLS.

Threads of the standard library's server time out per read, so one byte every two seconds keeps them busy for ever, and
its TLS handshake blocks the accept loop. asyncio streams in one thread have neither defect; handlers run in a pool.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

_log = logging.getLogger(__name__)

HEADER_SECONDS = 5.0
BODY_SECONDS = 10.0  # Alertmanager's own deadline for a delivery is 10 s or more
WRITE_SECONDS = 10.0
MAX_HEADER_BYTES = 16 << 10
MAX_BODY_BYTES = 16 << 20  # 1000 alerts take about 1 MiB
MAX_DRAINED_BYTES = 256 << 20  # of a body that is too large: read and thrown away, so that it can be answered
MAX_CONNECTIONS = 64


@dataclass(frozen=True)
class Request:
    """One request; header names are lower case. `oversized`: the body was too large and is not there."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    oversized: bool = False


@dataclass(frozen=True)
class Response:
    """One answer; Content-Length and Connection are added."""

    status: int
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)


class BadRequest(Exception):  # noqa: N818 - the request is bad, not we
    """A request that is answered without asking the handler."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


Handler = Callable[[Request], Response]


class HttpServer:
    """Listens from `start` to `stop`. `start` raises OSError when it cannot."""

    def __init__(self, host: str, port: int, handler: Handler, tls: ssl.SSLContext | None = None) -> None:
        self._host, self._port, self._handler, self._tls = host, port, handler, tls
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)
        self._pool = ThreadPoolExecutor(max_workers=8, thread_name_prefix="http-handler")
        self._open: set[asyncio.Task[Any]] = set()
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """The port, also when 0 was asked for."""
        return self._port

    def start(self) -> None:
        """Listen and serve in a thread of its own."""
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()
        except BaseException:
            self._end_loop()
            raise

    def stop(self) -> None:
        """Stop listening, let answers in progress finish for a moment, end the thread."""
        asyncio.run_coroutine_threadsafe(self._drain(), self._loop).result()
        self._end_loop()

    def _run(self) -> None:
        self._loop.run_forever()
        self._loop.run_until_complete(self._end_late())
        self._loop.close()

    async def _end_late(self) -> None:
        """End what `stop` did not see, as its TLS handshake was under way: a loop must leave no task behind."""
        late = asyncio.all_tasks() - {asyncio.current_task()}
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    def _end_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._pool.shutdown(wait=True)

    async def _listen(self) -> None:
        # The deadline for the handshake is only allowed together with TLS.
        deadline = None if self._tls is None else HEADER_SECONDS
        self._server = await asyncio.start_server(
            self._connected,
            self._host,
            self._port,
            limit=MAX_HEADER_BYTES,
            backlog=128,
            ssl=self._tls,
            ssl_handshake_timeout=deadline,
        )
        self._port = self._server.sockets[0].getsockname()[1]

    async def _drain(self) -> None:
        if self._server is not None:
            self._server.close()
        if self._open:
            await asyncio.wait(self._open, timeout=1.0)
        for task in list(self._open):
            task.cancel()
        if self._open:
            await asyncio.wait(self._open, timeout=1.0)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None or len(self._open) >= MAX_CONNECTIONS:
            writer.close()
            return
        self._open.add(task)
        try:
            with contextlib.suppress(OSError, asyncio.TimeoutError, asyncio.IncompleteReadError):
                await self._serve(reader, writer)
        finally:
            self._open.discard(task)
            writer.close()
            with contextlib.suppress(OSError, asyncio.TimeoutError, asyncio.CancelledError):
                await asyncio.wait_for(writer.wait_closed(), 1.0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        method = ""
        try:
            request = await asyncio.wait_for(_head(reader), HEADER_SECONDS)
            method = request.method
            body = await asyncio.wait_for(_body(reader, request), BODY_SECONDS)
            request = replace(request, body=body or b"", oversized=body is None)
            response = await self._loop.run_in_executor(self._pool, self._answer, request)
        except BadRequest as error:
            response = Response(error.status, f"{error.status.phrase}\n".encode())
        writer.write(_head_of(response) + (b"" if method == "HEAD" else response.body))
        await asyncio.wait_for(writer.drain(), WRITE_SECONDS)

    def _answer(self, request: Request) -> Response:
        try:
            return self._handler(request)
        except Exception:  # noqa: BLE001 - one bad request must not end the service; the client gets fixed text
            _log.exception("http: %s %s", request.method, request.path)
            return Response(500, b"internal error\n")


async def _head(reader: asyncio.StreamReader) -> Request:
    """The request line and headers; a truncated head is no request."""
    try:
        raw = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        raise BadRequest(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE) from None
    lines = raw.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise BadRequest(HTTPStatus.BAD_REQUEST)
    headers = {}
    for line in lines[1:-2]:
        name, colon, value = line.partition(":")
        if not colon:
            raise BadRequest(HTTPStatus.BAD_REQUEST)
        headers[name.strip().lower()] = value.strip()
    try:
        path = urlsplit(words[1]).path
    except ValueError:
        raise BadRequest(HTTPStatus.BAD_REQUEST) from None
    return Request(words[0], path, headers)


async def _body(reader: asyncio.StreamReader, request: Request) -> bytes | None:
    """The body, by its length or in chunks (a proxy may send those); None when it was too large and was thrown away."""
    if "transfer-encoding" in request.headers:
        if request.headers["transfer-encoding"].lower() != "chunked":
            raise BadRequest(HTTPStatus.NOT_IMPLEMENTED)
        return await _chunks(reader)
    length = request.headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit()):
        raise BadRequest(HTTPStatus.BAD_REQUEST)
    if len(length) > 10 or int(length) > MAX_DRAINED_BYTES:
        raise BadRequest(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    if int(length) <= MAX_BODY_BYTES:
        return await reader.readexactly(int(length))
    await _drain_body(reader, int(length))
    return None


async def _chunks(reader: asyncio.StreamReader) -> bytes | None:
    body, total = bytearray(), 0
    while (size := _chunk_size(await reader.readline())) > 0:
        total += size
        if total > MAX_DRAINED_BYTES:
            raise BadRequest(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        if total <= MAX_BODY_BYTES:
            body += await reader.readexactly(size)
        else:
            await _drain_body(reader, size)
        await reader.readexactly(2)
    while (await reader.readline()).strip():
        pass  # trailers
    return bytes(body) if total <= MAX_BODY_BYTES else None


def _chunk_size(line: bytes) -> int:
    digits = line.partition(b";")[0].strip()
    if not digits or len(digits) > 8 or not all(char in b"0123456789abcdefABCDEF" for char in digits):
        raise BadRequest(HTTPStatus.BAD_REQUEST)
    return int(digits, 16)


async def _drain_body(reader: asyncio.StreamReader, length: int) -> None:
    while length > 0:
        piece = await reader.read(min(length, 1 << 18))
        if not piece:
            raise asyncio.IncompleteReadError(b"", length)
        length -= len(piece)


def _head_of(response: Response) -> bytes:
    headers = {
        "Content-Type": response.content_type,
        "Content-Length": str(len(response.body)),
        "Connection": "close",
        "X-Content-Type-Options": "nosniff",
        **response.headers,
    }
    lines = [f"HTTP/1.1 {int(response.status)} {HTTPStatus(response.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
