"""One of several services on one database: it always accepts deliveries and clicks, and leads while it holds the lock.

Each term starts a new service, as after a start, because the memory of a deposed one can't be trusted.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from pyrometer_alerting.app.service import Service
from pyrometer_alerting.incidents.storage.leadership import Leadership
from pyrometer_alerting.incidents.storage.postgresql import PostgreSQL, Server
from pyrometer_alerting.incidents.storage.store import Store, StoreError
from pyrometer_kit.http_message import BlockingHandler, Request, Response, Route

LOOK_SECONDS = 0.1
STRANGER_SECONDS = 60.0
DESTINATION_FACT = "destination"
_log = logging.getLogger(__name__)


class Replica:
    """Run a service for each term; `build` makes the service of a term, on a store of its own.

    `destination` tells one fleet's services from another's, which have this database by mistake.
    """

    def __init__(self, server: Server, build: Callable[[Store], Service], destination: str = "") -> None:
        self._server, self._build, self._destination = server, build, destination
        self._leadership = Leadership(server)
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=target, daemon=True, name=target.__qualname__)
            for target in (self._leadership.run, self._run)
        ]
        self._retiring: list[threading.Thread] = []
        self._next()
        self._stranger, self._looked = "", float("-inf")
        self._routes = self._service.routes()

    def _next(self) -> None:
        self._engine = PostgreSQL(self._server, leads=self._leadership.leads)
        self._store = Store(self._engine)
        self._service = self._build(self._store)

    def routes(self) -> dict[str, Route[BlockingHandler]]:
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
        elif self._engine.epoch is None and time.monotonic() - self._looked > STRANGER_SECONDS:
            self._look_at_leader()

    def _look_at_leader(self) -> None:
        self._looked = time.monotonic()
        with contextlib.suppress(StoreError), self._store.snapshot() as tx:
            self._meet(tx.fact(DESTINATION_FACT))

    def _meet(self, theirs: str | None) -> None:
        """Say it where the leader's messages go elsewhere than ours: deliveries to us would go there as well."""
        if theirs is not None and theirs not in (self._destination, self._stranger):
            _log.error(
                "%s: a service with this database sends to %s, this one to %s: two fleets need a database each",
                *(self._engine.name, theirs, self._destination),
            )
        self._stranger = theirs or ""

    def _lead(self, epoch: int | None) -> None:
        self._engine.epoch, self._engine.loss = epoch, self._leadership.loss
        try:
            self._store.save_loss()
            self._leadership.loss = None
            with self._store.transaction() as tx:
                self._meet(tx.fact(DESTINATION_FACT))
                tx.save_fact(DESTINATION_FACT, self._destination)
            self._service.start()
        except StoreError as error:
            _log.error("%s", error)
            self._replace()

    def _replace(self) -> None:
        """Let a new service answer from now on, and stop the deposed one in the background."""
        deposed = self._service
        self._engine.close()
        self._next()
        self._routes = self._service.routes()
        self._service.listen()
        ending = threading.Thread(target=deposed.depose, daemon=True, name="deposed")
        ending.start()
        self._retiring = [*(thread for thread in self._retiring if thread.is_alive()), ending]
