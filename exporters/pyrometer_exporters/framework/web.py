"""The web server of the exporters: small, bounded, and deaf to slow or silent clients.

On asyncio rather than http.server or prometheus_client's server, because measurement shows why: with those,
one silent TLS client stops every scrape (the handshake runs in the accepting thread), a request cut off half-way
still runs a whole collection, and 500 half-open clients cost 44 s after they hang up; this shape answered in 7 ms.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import gzip
import logging
import struct
import termios
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import cast

from pyrometer_exporters.framework.background import Threads
from pyrometer_exporters.framework.connection import Connection, HeaderTooLargeError
from pyrometer_exporters.framework.flags import Address, UsageError
from pyrometer_exporters.framework.webconfig import WebConfig

log = logging.getLogger(__name__)

HEADER_SECONDS = 5.0  # for the whole header: http.server's per-read timeout lets one byte every 2 s hold a thread
WRITE_SECONDS = 10.0  # Prometheus has given up by then (its scrape timeout is 10 s by default)
IDLE_SECONDS = 65.0  # keep-alive: longer than the usual 60 s scrape interval
LINGER_SECONDS = 1.0  # for a client to hang up after its last answer
# Each connection costs ~10 kB, ~50 kB with TLS. Beyond, whoever has kept us waiting longest for a request makes room,
# so that no number of silent clients keeps Prometheus out.
MAX_CONNECTIONS = 128
MAX_FIELDS = 32
BACKLOG = 128  # with 5, bursts waited seconds for SYN retransmits
GZIP_FROM = 1400  # one packet
# Prometheus and vmagent send it. Where they run short of CPU, their HTTP client has read a small answer to its end when
# the timeout strikes, and hangs up without a reset: under heavy load 7 of 627 batches were lost to that.
_TIMEOUT = "x-prometheus-scrape-timeout-seconds"


@dataclass(frozen=True)
class Request:
    """A request's path, parameters and headers (names in lower case)."""

    version: str
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Response:
    """An answer; ``delivered`` is called once, with whether the client took all of it.

    Not when the kernel has it all: its buffers hold megabytes that a client which gives up never sees. But when the
    client asks again on the same connection, or hangs up and nothing is left unread. The second is no proof of one that
    scrapes: it keeps its connection after a scrape that went well, and hangs up when its timeout is over.
    """

    status: int
    content_type: str
    body: bytes
    delivered: Callable[[bool], None] | None = None


Handler = Callable[[Request], Awaitable[Response]]

_REASONS = {
    200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 405: "Method Not Allowed",
    431: "Request Header Fields Too Large", 500: "Internal Server Error", 503: "Service Unavailable",
}  # fmt: skip
# What urllib.parse would leave as it is.
_PLAIN = frozenset("/?&=-._~:,@!$'()*abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
_EXTRA = {401: 'WWW-Authenticate: Basic realm="pyrometer"', 405: "Allow: GET, HEAD"}


def text(status: int, message: str) -> Response:
    """A plain text answer."""
    return Response(status, "text/plain; charset=utf-8", f"{message}\n".encode())


class WebServer:
    """Serves handlers by exact path, GET and HEAD only."""

    def __init__(self, routes: Mapping[str, Handler], config: WebConfig, threads: Threads | None = None) -> None:
        """``threads`` are those that the handlers use too, if any."""
        self._threads = threads or Threads()
        self._routes = dict(routes)
        self._config = config
        self._server: asyncio.Server | None = None
        self._stopping = False
        self._connections: set[asyncio.Task[None]] = set()
        self._waiting: dict[asyncio.Task[None], Connection] = {}  # for a request; longest first
        self._hashing = asyncio.Lock()

    async def start(self, where: Address) -> int:
        """Listen; the port in use (for port 0: the one given). ``UsageError`` where that can't be."""
        try:
            self._server = await asyncio.get_running_loop().create_server(
                partial(Connection, self._accept), where.host or None, where.port, backlog=BACKLOG,
                ssl=self._config.tls, ssl_handshake_timeout=HEADER_SECONDS if self._config.tls else None,
            )  # fmt: skip
        except (OSError, UnicodeError) as error:  # UnicodeError: a host such as a..b, which no one can look up
            why = getattr(error, "strerror", None) or str(error)
            if getattr(error, "errno", None) == errno.EADDRINUSE:
                why = "the port is in use by another program"
            msg = f"--web.listen-address: can't listen on {where.host}:{where.port}: {why}; give another address"
            raise UsageError(msg) from None
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self, seconds: float = 0.8) -> None:
        """Stop listening, end idle connections, let answers under way finish, at most ``seconds``."""
        self._stopping = True
        if self._server is not None:
            self._server.close()
        for task in self._waiting:
            task.cancel()
        if self._connections:
            await asyncio.wait(self._connections, timeout=seconds)
        late = list(self._connections)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        self._threads.close()

    async def _accept(self, connection: Connection) -> None:
        task = cast("asyncio.Task[None]", asyncio.current_task())
        full = len(self._connections) >= MAX_CONNECTIONS and not self._make_room()
        self._connections.add(task)
        try:
            if full:
                await _write(connection, text(503, "too many connections"))
            else:
                await self._converse(task, connection)
        except (OSError, asyncio.TimeoutError):
            # The client went away or fell silent: nothing of ours is wrong. What it has not read is dropped: close()
            # alone would keep that, and the descriptor, until the client is so kind as to read on.
            connection.transport.abort()
        except asyncio.CancelledError:
            # By stop(): a task that ends as cancelled here makes asyncio log a traceback.
            if not self._stopping:
                raise
        finally:
            self._connections.discard(task)
            connection.transport.close()
            if self._config.tls:  # a client that doesn't answer the closing handshake would hold us for 30 s
                asyncio.get_running_loop().call_later(LINGER_SECONDS, connection.transport.abort)

    def _make_room(self) -> bool:
        """Drop the connection that has been waiting longest for its client to say something; whether there is one."""
        for task, connection in self._waiting.items():
            del self._waiting[task]
            self._connections.discard(task)
            connection.transport.abort()
            return True
        return False

    async def _converse(self, task: asyncio.Task[None], connection: Connection) -> None:
        unsettled: Callable[[bool], None] | None = None  # of an answer that the kernel took, and the client perhaps
        scraper = False
        wait = HEADER_SECONDS
        before: bytes | None = None
        request: Request | None = None
        try:
            while True:
                self._waiting[task] = connection
                header = await connection.header(wait, HEADER_SECONDS)
                self._waiting.pop(task, None)
                await self._settle(
                    unsettled, whole=header is not None or (not scraper and _all_acknowledged(connection))
                )
                unsettled = None
                if header is None:
                    return
                if header != before:  # who scrapes says the same each time
                    before, request = header, _parse(header)
                keep = request is not None and _keeps_open(request) and not self._stopping
                scraper = keep and request is not None and _TIMEOUT in request.headers
                unsettled = await self._answer(request, connection, keep=keep)
                if not keep or self._stopping:
                    await self._see_off(task, connection)
                    return
                wait = IDLE_SECONDS
        except HeaderTooLargeError:
            await _write(connection, text(431, "header too large"))
            await self._see_off(task, connection)
        except ConnectionError:
            # A reset: the client hung up with some of the answer unread.
            lost, unsettled = unsettled, None
            await self._settle(lost, whole=False)
            raise
        finally:
            self._waiting.pop(task, None)
            await self._settle(unsettled, whole=True)

    async def _see_off(self, task: asyncio.Task[None], connection: Connection) -> None:
        """Wait a moment for the client to hang up first: closing on what it still sends would cost it our answer."""
        if self._stopping or not connection.transport.can_write_eof():
            return
        self._waiting[task] = connection
        connection.transport.write_eof()
        await connection.read_on(LINGER_SECONDS)

    async def _answer(
        self, request: Request | None, connection: Connection, *, keep: bool
    ) -> Callable[[bool], None] | None:
        """Answer; what is still to be told whether the client took it."""
        if request is None:
            await _write(connection, text(400, "not an HTTP/1 request"))
            return None
        response = await self._respond(request)
        zipped = "gzip" in request.headers.get("accept-encoding", "") and len(response.body) >= GZIP_FROM
        head = request.method == "HEAD"
        whole = False
        try:
            await _write(connection, response, keep=keep, head=head, zipped=zipped)
            # A client that had hung up by then (Prometheus, after its timeout) gets nothing of it.
            whole = not head and not connection.over
        finally:
            if not whole:
                await self._settle(response.delivered, whole=False)
        return response.delivered if whole else None

    async def _respond(self, request: Request) -> Response:
        if not await self._allows(request.headers.get("authorization", "")):
            return text(401, "authentication required")
        if request.method not in ("GET", "HEAD"):
            return text(405, "only GET and HEAD")
        handler = self._routes.get(request.path)
        if handler is None:
            return text(404, "not found")
        try:
            return await handler(request)
        except Exception:
            log.exception("%s failed", request.path)
            return text(500, "internal error; the exporter's log says more")

    async def _allows(self, authorization: str) -> bool:
        if self._config.remembers(authorization):
            return True
        # In a thread, because checking a bcrypt hash takes some 60 ms; one at a time, because guessing passwords must
        # not cost the node more than a core.
        async with self._hashing:
            return await self._threads.call(self._config.allows, authorization)

    async def _settle(self, delivered: Callable[[bool], None] | None, *, whole: bool) -> None:
        if delivered is None:
            return
        try:
            await self._threads.call(delivered, whole)
        except Exception:
            log.exception("an answer's delivery could not be noted")


def _all_acknowledged(connection: Connection) -> bool:
    """Whether the client's kernel has everything that we sent; after a hang-up without a reset: the client, too."""
    try:
        socket = connection.transport.get_extra_info("socket")
        (left,) = struct.unpack("i", fcntl.ioctl(socket.fileno(), termios.TIOCOUTQ, b"\0" * 4))
    except (OSError, ValueError):  # closed already, which is no proof of anything
        return False
    return bool(left == 0)


def _parse(header: bytes) -> Request | None:
    """Method, path, parameters and headers of a request without a body."""
    lines = header.decode("latin-1").split("\r\n")
    parts = lines[0].split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        return None
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    try:
        path, query = _target(parts[1])
    except ValueError:
        return None
    return Request(parts[2], parts[0], path, query, headers)


def _target(target: str) -> tuple[str, dict[str, str]]:
    """The path and the parameters that a request names. Raises ValueError."""
    if target[:1] != "/" or target[:2] == "//" or not _PLAIN.issuperset(target):
        from urllib.parse import parse_qsl, urlsplit  # noqa: PLC0415  half a megabyte that scrapes need not load

        url = urlsplit(target)
        return url.path, dict(parse_qsl(url.query, max_num_fields=MAX_FIELDS))
    path, _, query = target.partition("?")
    pairs = [pair.partition("=") for pair in query.split("&")]
    if len(pairs) > MAX_FIELDS:
        msg = "too many fields"
        raise ValueError(msg)
    return path, {name: value for name, _, value in pairs if value}


def _keeps_open(request: Request) -> bool:
    """Whether the next bytes on the connection can only be a request: not after one that may carry a body."""
    headers = request.headers
    has_body = "content-length" in headers or "transfer-encoding" in headers
    return request.version == "HTTP/1.1" and not has_body and headers.get("connection", "").lower() != "close"


async def _write(
    connection: Connection, response: Response, *, keep: bool = False, head: bool = False, zipped: bool = False
) -> None:
    # Level 1: on 344 kB of metrics 1.2 ms against 25 ms for level 9, at less than twice the size.
    body = gzip.compress(response.body, 1) if zipped else response.body
    lines = [
        f"HTTP/1.1 {response.status} {_REASONS[response.status]}",
        f"Content-Type: {response.content_type}",
        f"Content-Length: {len(body)}",
        "X-Content-Type-Options: nosniff",
        f"Connection: {'keep-alive' if keep else 'close'}",
    ]
    if zipped:
        lines.append("Content-Encoding: gzip")
    if response.status in _EXTRA:
        lines.append(_EXTRA[response.status])
    data = "\r\n".join(lines).encode() + b"\r\n\r\n" + (b"" if head else body)
    await connection.write(data, WRITE_SECONDS)
