"""A client's connection: headers in, answers out, each within its deadline.

Not asyncio's streams: each request goes through half a dozen of their coroutines, futures and timers, which on a node
at rest is a good part of what a short answer costs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

HEADER_BYTES = 16 * 1024
_END = b"\r\n\r\n"


class HeaderTooLargeError(Exception):
    """A header of more than HEADER_BYTES."""


class Connection(asyncio.Protocol):
    """What a client sends and takes. Within one event loop; one coroutine at a time waits for it."""

    transport: asyncio.Transport

    def __init__(self, serve: Callable[[Connection], Coroutine[Any, Any, None]]) -> None:
        """``serve`` is the conversation, which begins when the connection is there."""
        self._serve = serve
        self._loop = asyncio.get_running_loop()
        self._unread = bytearray()
        self._held = False  # whether we read on later
        self._ended = False  # the client says no more
        self._lost = False
        self._error: Exception | None = None  # a reset
        self._full = False  # what was written is more than the kernel takes
        self._waiter: asyncio.Future[None] | None = None

    @property
    def over(self) -> bool:
        """Whether the client has hung up, or at least says no more."""
        return self._ended and not self._unread

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See :class:`asyncio.Protocol`."""
        self.transport = cast("asyncio.Transport", transport)
        # write() then waits until the kernel has everything.
        self.transport.set_write_buffer_limits(high=0)
        self._task = self._loop.create_task(self._serve(self))

    def data_received(self, data: bytes) -> None:
        """See :class:`asyncio.Protocol`."""
        self._unread += data
        if len(self._unread) > 2 * HEADER_BYTES and not self._held:  # it sends more than we ask for: let it wait
            self._held = True
            self.transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        """See :class:`asyncio.Protocol`. A client may have said all and still wait for the answer, but not with TLS."""
        self._ended = True
        self._wake()
        return self.transport.get_extra_info("sslcontext") is None

    def connection_lost(self, error: Exception | None) -> None:
        """See :class:`asyncio.Protocol`."""
        self._ended = self._lost = True
        self._error = error
        self._wake()

    def pause_writing(self) -> None:
        """See :class:`asyncio.Protocol`."""
        self._full = True

    def resume_writing(self) -> None:
        """See :class:`asyncio.Protocol`."""
        self._full = False
        self._wake()

    async def header(self, idle_seconds: float, header_seconds: float) -> bytes | None:
        """The next request's header; None where the client said no more. One cut off half-way is no request.

        The first byte may take ``idle_seconds``, all others together ``header_seconds``. Raises asyncio.TimeoutError,
        HeaderTooLargeError, and OSError where the client reset the connection.
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
        return self._taken(end + len(_END))

    async def write(self, data: bytes, seconds: float) -> None:
        """Write all of it, within ``seconds``. Raises asyncio.TimeoutError, and OSError where the client is gone."""
        self.transport.write(data)
        if self.transport.is_closing():  # the loop is about to tell that the connection is lost
            await asyncio.sleep(0)
        until = self._loop.time() + seconds
        while self._full and not self._lost:
            await self._change(until)
        if self._lost:
            raise self._error or ConnectionResetError("the client has hung up")

    async def read_on(self, seconds: float) -> None:
        """Throw away what the client still sends until it hangs up, for ``seconds`` at most. Raises OSError."""
        until = self._loop.time() + seconds
        while not self._ended and self._loop.time() < until:
            self._taken(len(self._unread))
            try:
                await self._change(until)
            except asyncio.TimeoutError:
                return
        if self._error is not None:
            raise self._error

    def _check_unread(self) -> None:
        if self._error is not None:
            raise self._error
        if len(self._unread) > HEADER_BYTES and self._unread.find(_END, 0, HEADER_BYTES) < 0:
            raise HeaderTooLargeError

    def _taken(self, count: int) -> bytes:
        taken = bytes(self._unread[:count])
        del self._unread[:count]
        if self._held and len(self._unread) <= HEADER_BYTES and not self._ended:
            self._held = False
            self.transport.resume_reading()
        return taken

    async def _change(self, until: float) -> None:
        """Wait until anything happens, at most until the loop's time ``until``; then raises asyncio.TimeoutError."""
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
