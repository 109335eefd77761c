"""The HTTP server of every service: small, bounded, and unaffected by slow or silent clients.

On asyncio rather than http.server, because there one silent TLS client stops every scrape (the handshake runs in the
accepting thread), a truncated request still runs its handler, and half-open clients hold a thread each.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import socket
import struct
import termios
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import ceil
from typing import cast

from pyrometer_kit.flags import Address
from pyrometer_kit.http_body import Room, declared_length, read_body
from pyrometer_kit.http_connection import Connection, HeaderTooLargeError
from pyrometer_kit.http_listener import Listener, until_readable
from pyrometer_kit.http_message import (
    READ_METHODS,
    BadRequestError,
    Handler,
    Request,
    Response,
    Route,
    parse_request,
    render,
    text,
)
from pyrometer_kit.negotiation import coding_quality
from pyrometer_kit.own_names import OwnNames
from pyrometer_kit.threads import Threads
from pyrometer_kit.tls import ListeningContext, has_allowed_san, listening_context
from pyrometer_kit.webconfig import WebConfig

log = logging.getLogger(__name__)

HEADER_SECONDS = 5.0  # for the whole header: a timeout per read lets one byte every 2 s hold a connection
WRITE_SECONDS = 10.0  # Prometheus has given up by then (its scrape timeout is 10 s by default)
IDLE_SECONDS = 65.0  # keep-alive: longer than the usual 60 s scrape interval
LINGER_SECONDS = 1.0  # for a client to hang up after its last answer
# Beyond this, the client that has kept us waiting longest is dropped, so that no number of silent clients
# keeps Prometheus out.
MAX_CONNECTIONS = 128
# With TLS each takes up to 0.9 MB, of which asyncio's buffers are 256 KiB (`benchmarks/bench_clients.py`).
MAX_TLS_CONNECTIONS = 48
MAX_IGNORED_BYTES = 16 << 20  # of an unexpected body
# Prometheus and vmagent send it. Where they run short of CPU, their HTTP client has read a small answer to its end when
# the timeout strikes, and hangs up without a reset.
_TIMEOUT = "x-prometheus-scrape-timeout-seconds"

Receipt = Callable[[bool], None]


class WebServer:
    """Serves routes by exact path, under the configuration in force at each connection and request."""

    def __init__(
        self,
        routes: Mapping[str, Handler | Route[Handler]],
        config: WebConfig,
        threads: Threads | None = None,
        rejected: Callable[[], None] = lambda: None,
        names: OwnNames | None = None,
    ) -> None:
        """Serve ``routes``; share ``threads`` with the handlers; call ``rejected`` for wrong credentials.

        ``names``: browsers get nothing under others, where nobody must log in.
        """
        self._names = names
        self._threads = threads or Threads()
        self._routes = {path: to if isinstance(to, Route) else Route(to) for path, to in routes.items()}
        self._config = config
        self._rejected = rejected
        self._server: Listener | None = None
        self._context: ListeningContext | None = None
        self._stopping = False
        self._connections: set[asyncio.Task[None]] = set()
        # Conversations that wait for their client, longest first, each with the function that ends it at once.
        self._waiting: dict[asyncio.Task[None], Callable[[], object]] = {}
        self._hashing: asyncio.Lock | None = None
        self._room = Room()

    async def start(self, address: Address) -> int:
        """Listen; return the port, also for port 0.

        Raises:
            UsageError: The address cannot be listened on.
        """
        self._hashing = asyncio.Lock()
        self._context = self._listening_context()
        self._server = Listener(self._accept)
        return await self._server.start(address)

    async def stop(self, seconds: float = 0.8) -> None:
        """Stop listening, end idle connections, let answers in progress finish, for ``seconds`` at most."""
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

    def _listening_context(self) -> ListeningContext | None:
        if self._config.tls is None:
            return None
        return listening_context(lambda: self._config.tls)

    async def _accept(self, client: socket.socket) -> None:
        """Talk to a client, which counts as a connection from here on: before it has sent a byte, or any handshake."""
        task = cast("asyncio.Task[None]", asyncio.current_task())
        full = len(self._connections) >= self._most() and not self._make_room()
        self._connections.add(task)
        self._waiting[task] = task.cancel
        connection = Connection()
        try:
            if full and self._context is not None:  # a handshake only to refuse it would cost too much
                return
            await self._connect(client, connection)
            if not self._admits(connection):
                connection.transport.abort()
            elif full:
                await self._write(connection, text(503, "too many connections"))
            else:
                await self._converse(task, connection)
        except (OSError, asyncio.TimeoutError):
            # The client went away or fell silent: not an error of ours. Unread data is dropped: close() alone
            # would keep it, and the descriptor, until the client reads on.
            if connection.made:
                connection.transport.abort()
        except asyncio.CancelledError:
            pass  # by stop(), or to make room
        finally:
            self._waiting.pop(task, None)
            self._connections.discard(task)
            self._hang_up(client, connection)

    async def _connect(self, client: socket.socket, connection: Connection) -> None:
        """Make the connection; with TLS only once the client has begun, and within HEADER_SECONDS.

        Raises:
            asyncio.TimeoutError: The client says nothing.
            OSError: The handshake failed, or was too slow.
        """
        loop = asyncio.get_running_loop()
        if self._context is None:
            await loop.connect_accepted_socket(lambda: connection, client)
            return
        await until_readable(client, HEADER_SECONDS)
        if asyncio.current_task() not in self._connections:
            # It has made room: `wait_for` of Python 3.11 forgets a cancellation that comes with the first byte.
            raise asyncio.CancelledError
        await loop.connect_accepted_socket(
            lambda: connection, client, ssl=self._context, ssl_handshake_timeout=HEADER_SECONDS
        )

    def _hang_up(self, client: socket.socket, connection: Connection) -> None:
        if not connection.made:
            client.close()
            return
        connection.transport.close()
        if self._context is not None:  # a client that doesn't answer the closing handshake would hold us for 30 s
            asyncio.get_running_loop().call_later(LINGER_SECONDS, connection.transport.abort)

    def _most(self) -> int:
        return MAX_CONNECTIONS if self._context is None else MAX_TLS_CONNECTIONS

    def _admits(self, connection: Connection) -> bool:
        """Return whether the client's certificate has one of the names that are allowed."""
        if not self._config.allowed_sans:
            return True
        certificate = connection.transport.get_extra_info("peercert")
        if has_allowed_san(certificate, self._config.allowed_sans):
            return True
        log.warning("refused a client certificate: none of its names is in client_allowed_sans")
        return False

    def _make_room(self) -> bool:
        """Drop the connection that has waited longest for its client to send anything; return whether one did."""
        for task, end in self._waiting.items():
            del self._waiting[task]
            self._connections.discard(task)
            end()
            return True
        return False

    async def _converse(self, task: asyncio.Task[None], connection: Connection) -> None:
        receipt: Receipt | None = None  # of an answer that the kernel accepted, and perhaps the client
        scraper = False
        wait = HEADER_SECONDS
        before: bytes | None = None
        request: Request | None = None
        try:
            while True:
                self._waiting[task] = connection.transport.abort
                header = await connection.header(wait, HEADER_SECONDS)
                self._waiting.pop(task, None)
                delivered = header is not None or (not scraper and _all_acknowledged(connection))
                await self._report(receipt, delivered=delivered)
                receipt = None
                if header is None:
                    return
                if request is None or header != before:  # a scraper sends the same each time
                    before, request = header, parse_request(header, connection.peer)
                receipt, keep = await self._answer(request, connection)
                scraper = keep and _TIMEOUT in request.headers
                if not keep:
                    await self._linger(task, connection, unread=request.has_body)
                    return
                wait = IDLE_SECONDS
        except HeaderTooLargeError:
            await self._refuse(task, connection, text(431, "header too large"))
        except BadRequestError as error:
            await self._refuse(task, connection, text(error.status, str(error)))
        except ConnectionError:
            # A reset: the client hung up with some of the answer unread.
            lost, receipt = receipt, None
            await self._report(lost, delivered=False)
            raise
        finally:
            self._waiting.pop(task, None)
            await self._report(receipt, delivered=True)

    async def _refuse(self, task: asyncio.Task[None], connection: Connection, response: Response) -> None:
        await self._write(connection, response)
        await self._linger(task, connection, unread=True)

    async def _linger(self, task: asyncio.Task[None], connection: Connection, *, unread: bool) -> None:
        """Wait a moment for the client to hang up first: closing while it still sends would lose our answer."""
        half_close = connection.transport.can_write_eof()  # not with TLS
        if self._stopping or not (half_close or unread):
            return
        self._waiting[task] = connection.transport.abort
        if half_close:
            connection.transport.write_eof()
        await connection.drain(LINGER_SECONDS)

    async def _answer(self, request: Request, connection: Connection) -> tuple[Receipt | None, bool]:
        """Answer; return the receipt that is still to be reported, and whether the connection stays open."""
        response, whole_body = await self._respond(request, connection)
        keep = request.may_continue and whole_body and not self._stopping
        head = request.method == "HEAD"
        zipped = coding_quality(request.headers.get("accept-encoding", ""), "gzip") > 0
        delivered = False
        try:
            await self._write(connection, response, keep=keep, head=head, zipped=zipped)
            # A client that had hung up by then (Prometheus, after its timeout) receives nothing of it.
            delivered = not head and not connection.over
        finally:
            if not delivered:
                await self._report(response.delivered, delivered=False)
        return response.delivered if delivered else None, keep and not self._stopping

    async def _respond(self, request: Request, connection: Connection) -> tuple[Response, bool]:
        """Return the answer, and whether the request was read completely."""
        route = self._routes.get(request.path)
        refusal = await self._refusal(request, route)
        if refusal is not None or route is None:
            return refusal or text(404, "not found"), not request.has_body
        if not route.max_body:
            return await self._handle(route, request), not request.has_body
        if request.headers.get("expect", "").lower() == "100-continue":
            await connection.write(b"HTTP/1.1 100 Continue\r\n\r\n", WRITE_SECONDS)
        with self._room.share() as grow:
            body = await read_body(connection, request, route.max_body, grow)
            if body is None and not route.takes_oversized:
                return text(413, f"the body is larger than {route.max_body} bytes"), True
            return await self._handle(route, replace(request, body=body or b"", oversized=body is None)), True

    async def _refusal(self, request: Request, route: Route[Handler] | None) -> Response | None:
        """Return the answer to a request that no handler should see; None for all others."""
        limit = self._config.rate_limit
        if limit is not None and not limit.take():
            return text(429, "too many requests", Retry_After=str(ceil(limit.interval)))
        if not await self._allows(request.headers.get("authorization", ""), route):
            self._rejected()
            return text(401, "authentication required", WWW_Authenticate='Basic realm="pyrometer"')
        takes_body = route is not None and route.max_body > 0
        if request.has_body and not takes_body and (declared_length(request) or 0) > MAX_IGNORED_BYTES:
            return text(413, "too large: no body is expected here")
        if foreign := self._foreign(request, route):
            return text(403, foreign)
        methods = route.methods if route else READ_METHODS
        if request.method not in methods:
            return text(405, f"only {' and '.join(methods)}", Allow=", ".join(methods))
        return None

    def _foreign(self, request: Request, route: Route[Handler] | None) -> str:
        """Return what is wrong with a request that a browser sends for a page of another site; empty for all others.

        Where there is no Origin, no browser wants to change anything. Alertmanager's name of us is not ours to judge.
        """
        names = None if self._config.asks_login else self._names
        host, origin = request.headers.get("host"), request.headers.get("origin")
        if request.method not in READ_METHODS:
            place = (origin or "").partition("://")[2]
            if origin is None or (place == host and (names is None or names.has(place))):
                return ""
            return "the request comes from a page of another site, which may not change anything here"
        if names is None or host is None or route is None or route.any_name or names.has(host):
            return ""
        return "this is not the service's own name: set --web.external-url, or ask for a login (--web.config.file)"

    async def _handle(self, route: Route[Handler], request: Request) -> Response:
        try:
            return await route.handler(request)
        except Exception:
            log.exception("%s %s failed", request.method, request.path)
            return text(500, "internal error; the service's log has the details")

    async def _allows(self, authorization: str, route: Route[Handler] | None) -> bool:
        auth = self._config.auth
        if route is not None and route.tokens is not None and route.tokens.tokens:
            if route.tokens.match(authorization):
                return True
            if not auth.users:
                return False
        if auth.remembers(authorization):
            return True
        # In a thread, because a bcrypt hash is slow by design; one at a time, because guessing passwords must not cost
        # the node more than a core.
        assert self._hashing is not None  # noqa: S101  made by start()
        async with self._hashing:
            return await self._threads.call(auth.allows, authorization)

    async def _write(
        self,
        connection: Connection,
        response: Response,
        *,
        keep: bool = False,
        head: bool = False,
        zipped: bool = False,
    ) -> None:
        data = render(response, self._config.headers, keep=keep, head=head, zipped=zipped)
        await connection.write(data, WRITE_SECONDS)

    async def _report(self, receipt: Receipt | None, *, delivered: bool) -> None:
        if receipt is None:
            return
        try:
            await self._threads.call(receipt, delivered)
        except Exception:
            log.exception("could not record that the response was delivered")


def _all_acknowledged(connection: Connection) -> bool:
    """Return whether the client's kernel has all that we sent; after a hang-up without a reset: the client, too."""
    try:
        socket = connection.transport.get_extra_info("socket")
        (left,) = struct.unpack("i", fcntl.ioctl(socket.fileno(), termios.TIOCOUTQ, b"\0" * 4))
    except (OSError, ValueError):  # closed already, which proves nothing
        return False
    return bool(left == 0)
