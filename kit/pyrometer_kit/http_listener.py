"""Accept connections one by one, and let the server count each before any resources are spent on it.

Not ``asyncio``'s own accepting: with TLS it makes the buffers of a connection and starts the handshake before the
server hears of it, so clients that never begin one can use unlimited memory.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable, Coroutine
from typing import Any

from pyrometer_kit.errors import UsageError
from pyrometer_kit.flags import Address

log = logging.getLogger(__name__)

BACKLOG = 128  # with 5, bursts waited seconds for SYN retransmits
TURN = 16  # connections accepted before open ones get their turn
AGAIN_SECONDS = 1.0  # without a descriptor or memory for one more
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Listener:
    """Runs ``serve`` with each accepted socket, in a task of its own. Within one event loop."""

    def __init__(self, serve: Callable[[socket.socket], Coroutine[Any, Any, None]]) -> None:
        self._serve = serve
        self._sockets: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()  # the loop itself keeps no reference

    async def start(self, address: Address) -> int:
        """Listen; return the port, also for port 0.

        Raises:
            UsageError: The address cannot be listened on.
        """
        loop = asyncio.get_running_loop()
        try:
            bound = await loop.create_server(asyncio.Protocol, address.host or None, address.port, start_serving=False)
            self._sockets = [bound_socket.dup() for bound_socket in bound.sockets]
            bound.close()
            for listening in self._sockets:
                listening.listen(BACKLOG)
        except (OSError, UnicodeError) as error:  # UnicodeError: a host such as a..b, which cannot be resolved
            why = getattr(error, "strerror", None) or str(error)
            if getattr(error, "errno", None) == errno.EADDRINUSE:
                why = "the port is in use by another program"
            msg = f"--web.listen-address: can't listen on {address.host}:{address.port}: {why}; give another address"
            raise UsageError(msg) from None
        for listening in self._sockets:
            loop.add_reader(listening, self._accept_all, listening)
        return int(self._sockets[0].getsockname()[1])

    def close(self) -> None:
        """Stop listening."""
        for listening in self._sockets:
            asyncio.get_running_loop().remove_reader(listening)
            listening.close()
        self._sockets.clear()

    def _accept_all(self, listening: socket.socket) -> None:
        """Accept waiting connections, a few at a time."""
        loop = asyncio.get_running_loop()
        for _ in range(TURN):
            try:
                client, _address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                log.error("can't accept connections for %g s: %s", AGAIN_SECONDS, error.strerror)
                loop.remove_reader(listening)
                loop.call_later(AGAIN_SECONDS, self._resume, listening)
                return
            client.settimeout(0)
            task = loop.create_task(self._serve(client))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _resume(self, listening: socket.socket) -> None:
        if listening in self._sockets:
            asyncio.get_running_loop().add_reader(listening, self._accept_all, listening)


async def until_readable(client: socket.socket, seconds: float) -> None:
    """Wait for the client's first byte.

    Raises:
        asyncio.TimeoutError: None came within ``seconds``.
    """
    loop = asyncio.get_running_loop()
    came = asyncio.Event()
    loop.add_reader(client, came.set)
    try:
        await asyncio.wait_for(came.wait(), seconds)
    finally:
        loop.remove_reader(client)
