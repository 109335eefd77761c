"""The HTTP server in a thread of its own, for a service whose handlers are plain functions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pyrometer_kit.auth import BearerTokens
from pyrometer_kit.flags import Address
from pyrometer_kit.http_message import READ_METHODS, Handler, Request, Response, Route
from pyrometer_kit.http_server import WebServer
from pyrometer_kit.threads import Threads
from pyrometer_kit.webconfig import WebConfig

T = TypeVar("T")

_IDLE_THREADS = 8


@dataclass(frozen=True)
class BlockingRoute:
    """As :class:`Route`, with a handler that may block: each call runs in a thread."""

    handler: Callable[[Request], Response]
    methods: tuple[str, ...] = READ_METHODS
    max_body: int = 0
    takes_oversized: bool = False
    tokens: BearerTokens | None = None


class ServerThread:
    """A server that listens from :meth:`start` to :meth:`stop`."""

    def __init__(
        self,
        routes: Mapping[str, BlockingRoute],
        config: WebConfig,
        rejected: Callable[[], None] = lambda: None,
    ) -> None:
        """See :class:`WebServer`."""
        threads = Threads(kept=_IDLE_THREADS)
        self._server = WebServer({path: _route(to, threads) for path, to in routes.items()}, config, threads, rejected)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)
        self.port = 0
        """The port, also when 0 was asked for."""

    def start(self, address: Address) -> int:
        """Listen; return the port.

        Raises:
            UsageError: The address cannot be listened on.
        """
        self._thread.start()
        try:
            self.port = self._wait(self._server.start(address))
        except BaseException:
            self._end()
            raise
        return self.port

    def stop(self) -> None:
        """Stop listening, let answers in progress finish for a moment, end the thread."""
        self._wait(self._server.stop())
        self._end()

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _run(self) -> None:
        self._loop.run_forever()
        self._loop.run_until_complete(self._end_late())
        self._loop.close()

    async def _end_late(self) -> None:
        """End conversations that began while the server stopped, such as after a TLS handshake."""
        late = asyncio.all_tasks() - {asyncio.current_task()}
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


def _route(blocking: BlockingRoute, threads: Threads) -> Route:
    return Route(
        _handler(blocking.handler, threads),
        blocking.methods,
        blocking.max_body,
        blocking.takes_oversized,
        blocking.tokens,
    )


def _handler(function: Callable[[Request], Response], threads: Threads) -> Handler:
    async def handle(request: Request) -> Response:
        return await threads.call(function, request)

    return handle
