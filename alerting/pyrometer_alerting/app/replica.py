"""One of several services on one database: it always accepts deliveries and clicks, and leads while it holds the lock.

Each term starts a new service, as after a start, because the memory of a deposed one can't be trusted.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace

from pyrometer_alerting.app.service import Service
from pyrometer_alerting.state.leadership import Leadership
from pyrometer_alerting.state.postgresql import PostgreSQL, Server
from pyrometer_alerting.state.store import Store, StoreError
from pyrometer_kit.http_message import Request, Response
from pyrometer_kit.http_thread import BlockingRoute

LOOK_SECONDS = 0.1
_log = logging.getLogger(__name__)


class Replica:
    """Run a service for each term; `build` makes the service of a term, with its own store."""

    def __init__(self, server: Server, build: Callable[[Store], Service]) -> None:
        self._server, self._build = server, build
        self._leadership = Leadership(server)
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=target, daemon=True, name=target.__qualname__)
            for target in (self._leadership.run, self._run)
        ]
        self._retiring: list[threading.Thread] = []
        self._engine, self._service = self._next()
        self._routes = self._service.routes()

    def _next(self) -> tuple[PostgreSQL, Service]:
        engine = PostgreSQL(self._server, leads=self._leadership.leads)
        return engine, self._build(Store(engine))

    def routes(self) -> dict[str, BlockingRoute]:
        """Return the routes of the HTTP server, which the service of the present term answers."""
        return {path: replace(route, handler=self._answer(path)) for path, route in self._routes.items()}

    def _answer(self, path: str) -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:
            return self._routes[path].handler(request)

        return answer

    def rejected(self) -> None:
        """Count a request with wrong credentials."""
        self._service.rejected()

    def reload(self) -> None:
        """Read the configuration again.

        Raises:
            UsageError: it is invalid.
        """
        self._service.reload()

    def start(self) -> None:
        """Accept deliveries, and lead as soon as no other replica does."""
        self._service.listen()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Finish the call in progress, then let another replica lead."""
        self._stopping.set()
        self._threads[1].join()
        self._service.stop()
        self._leadership.stop()
        for thread in [self._threads[0], *self._retiring]:
            thread.join(timeout=15.0)

    def _run(self) -> None:
        while not self._stopping.wait(LOOK_SECONDS):
            try:
                self._look()
            except Exception:  # noqa: BLE001 - the next look may succeed; without one nobody leads
                _log.exception("replica")

    def _look(self) -> None:
        self._leadership.check()
        self._engine.sever_stuck()
        leads, epoch = self._leadership.leads(), self._leadership.epoch
        if self._engine.epoch is None and leads:
            self._lead(epoch)
        elif self._engine.epoch is not None and not (leads and self._engine.epoch == epoch):
            self._replace()

    def _lead(self, epoch: int | None) -> None:
        self._engine.epoch = epoch
        try:
            self._service.start()
        except StoreError as error:
            _log.error("%s", error)
            self._replace()

    def _replace(self) -> None:
        """Let a new service answer from now on, and stop the deposed one in the background."""
        deposed = self._service
        self._engine.close()
        self._engine, self._service = self._next()
        self._routes = self._service.routes()
        self._service.listen()
        ending = threading.Thread(target=deposed.depose, daemon=True, name="deposed")
        ending.start()
        self._retiring = [*(thread for thread in self._retiring if thread.is_alive()), ending]
