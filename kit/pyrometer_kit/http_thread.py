"""The HTTP server in a thread of its own, for a service whose handlers are plain functions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any, TypeVar, cast

from pyrometer_kit.flags import Address
from pyrometer_kit.http_message import BlockingHandler, Handler, Request, Response, Route
from pyrometer_kit.http_server import WebServer
from pyrometer_kit.own_names import OwnNames
from pyrometer_kit.threads import Threads
from pyrometer_kit.webconfig import WebConfig

T = TypeVar("T")

_IDLE_THREADS = 8


class ServerThread:
    """A server that listens from :meth:`start` to :meth:`stop`."""

    def __init__(
        self,
        routes: Mapping[str, Route[BlockingHandler]],
        config: WebConfig,
        rejected: Callable[[], None] = lambda: None,
        names: OwnNames | None = None,
    ) -> None:
        """See :class:`WebServer`; each call of a handler runs in a thread of its own."""
        threads = Threads(kept=_IDLE_THREADS)
        self._server = WebServer(
            {path: _in_threads(to, threads) for path, to in routes.items()}, config, threads, rejected, names
        )
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


def _in_threads(route: Route[BlockingHandler], threads: Threads) -> Route[Handler]:
    async def handle(request: Request) -> Response:
        return await threads.call(route.handler, request)

    return cast("Route[Handler]", replace(cast("Route[Any]", route), handler=handle))
