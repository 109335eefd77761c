"""A client's connection: headers and bodies in, answers out, each within its deadline.

Not asyncio's streams: each request passes through half a dozen of their coroutines, futures and timers, a large part
of the cost of a short answer on an idle node.
"""

from __future__ import annotations

import asyncio
from typing import cast

HEADER_BYTES = 16 * 1024
LINE_BYTES = 1024
_END = b"\r\n\r\n"


class HeaderTooLargeError(Exception):
    """A header of more than HEADER_BYTES, or a line of more than LINE_BYTES."""


class Connection(asyncio.Protocol):
    """The bytes from and to one client. Within one event loop; one coroutine at a time waits for it.

    Times named ``until`` are those of the loop.
    """

    transport: asyncio.Transport

    def __init__(self) -> None:
        """Wait for the transport."""
        self.made = False
        """True once the connection is made, with TLS after the handshake."""
        self._loop = asyncio.get_running_loop()
        self._unread = bytearray()
        self._paused = False  # reading, as the client sends more than we ask for
        self._ended = False  # the client sends no more
        self._lost = False
        self._error: Exception | None = None  # a reset
        self._full = False  # more is written than the kernel accepts
        self._waiter: asyncio.Future[None] | None = None

    @property
    def over(self) -> bool:
        """True if the client has hung up, or at least sends no more."""
        return self._ended and not self._unread

    @property
    def peer(self) -> str:
        """IP address of the client, without its port; empty for a Unix socket."""
        address = self.transport.get_extra_info("peername")
        return str(address[0]) if isinstance(address, tuple) and address else ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        self.transport, self.made = cast("asyncio.Transport", transport), True
        # write() then waits until the kernel has everything. asyncio's TLS transport pauses at the limit, not above it:
        # with 0 it would pause for good after each answer.
        tls = self.transport.get_extra_info("sslcontext") is not None
        self.transport.set_write_buffer_limits(high=1 if tls else 0, low=0)

    def data_received(self, data: bytes) -> None:
        """Store the data; pause a client that sends far ahead."""
        self._unread += data
        if len(self._unread) > 2 * HEADER_BYTES and not self._paused:
            self._paused = True
            self.transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        """Return whether to keep the connection: a client may send no more and await the answer, but not with TLS."""
        self._ended = True
        self._wake()
        return self.transport.get_extra_info("sslcontext") is None

    def connection_lost(self, exc: Exception | None) -> None:
        """Wake all waiters."""
        self._ended = self._lost = True
        self._error = exc
        self._wake()

    def pause_writing(self) -> None:
        """Make :meth:`write` wait."""
        self._full = True

    def resume_writing(self) -> None:
        """Let :meth:`write` return."""
        self._full = False
        self._wake()

    async def header(self, idle_seconds: float, header_seconds: float) -> bytes | None:
        """Return the next request's header; None where the client sends no more. A truncated one is no request.

        The first byte may take ``idle_seconds``, the rest together ``header_seconds``.

        Raises:
            asyncio.TimeoutError: One of them is over.
            HeaderTooLargeError: It is longer than HEADER_BYTES.
            OSError: The client reset the connection.
        """
        until, begun, searched = self._loop.time() + idle_seconds, False, 0
        while (end := self._unread.find(_END, max(0, searched - len(_END)))) < 0:
            self._check_unread()
            if self._ended:
                return None
            if self._unread and not begun:
                until, begun = self._loop.time() + header_seconds, True
            searched = len(self._unread)
            await self._change(until)
        self._check_unread()
        return self._take(end + len(_END))

    async def some(self, limit: int, until: float) -> bytes:
        """Return between 1 and ``limit`` bytes of a body.

        Raises:
            asyncio.TimeoutError: Nothing came in time.
            ConnectionError: The client sends no more.
        """
        await self._await_more(0, until)
        return self._take(limit)

    async def line(self, until: float) -> bytes:
        """Return the next line of a body in chunks, without its end.

        Raises:
            asyncio.TimeoutError: It did not come in time.
            HeaderTooLargeError: It is longer than LINE_BYTES.
            ConnectionError: The client sends no more.
        """
        while (end := self._unread.find(b"\r\n", 0, LINE_BYTES)) < 0:
            if len(self._unread) >= LINE_BYTES:
                raise HeaderTooLargeError
            await self._await_more(len(self._unread), until)
        return self._take(end + 2)[:-2]

    async def write(self, data: bytes, seconds: float) -> None:
        """Write all of ``data``.

        Raises:
            asyncio.TimeoutError: The client did not take it within ``seconds``.
            OSError: The client is gone.
        """
        self.transport.write(data)
        if self.transport.is_closing():  # the loop is about to report that the connection is lost
            await asyncio.sleep(0)
        until = self._loop.time() + seconds
        while self._full and not self._lost:
            await self._change(until)
        if self._lost:
            raise self._error or ConnectionResetError("the client has hung up")

    async def drain(self, seconds: float) -> None:
        """Discard further data from the client until it hangs up, for at most ``seconds``.

        Raises:
            OSError: The client reset the connection.
        """
        until = self._loop.time() + seconds
        while not self._ended and self._loop.time() < until:
            self._take(len(self._unread))
            try:
                await self._change(until)
            except asyncio.TimeoutError:
                return
        if self._error is not None:
            raise self._error

    async def _await_more(self, than: int, until: float) -> None:
        while len(self._unread) <= than:
            if self._ended:
                raise self._error or ConnectionResetError("the client sent half a request")
            await self._change(until)

    def _check_unread(self) -> None:
        if self._error is not None:
            raise self._error
        if len(self._unread) > HEADER_BYTES and self._unread.find(_END, 0, HEADER_BYTES) < 0:
            raise HeaderTooLargeError

    def _take(self, count: int) -> bytes:
        taken = bytes(self._unread[:count])
        del self._unread[:count]
        if self._paused and len(self._unread) <= HEADER_BYTES and not self._ended:
            self._paused = False
            self.transport.resume_reading()
        return taken

    async def _change(self, until: float) -> None:
        """Wait for any change; raise asyncio.TimeoutError at ``until``."""
        waiter = self._waiter = self._loop.create_future()
        timer = self._loop.call_at(until, _expire, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _expire(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_exception(asyncio.TimeoutError())
