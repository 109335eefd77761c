"""The whole service with its server, on loopback."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from alerting_fakes import FakePrometheus

from pyrometer_alerting.app.service import Service
from pyrometer_alerting.channel.blocks import Style
from pyrometer_alerting.channel.slack import WebSlack
from pyrometer_alerting.incidents.storage.store import Store
from pyrometer_alerting.model.routing import Routing
from pyrometer_kit.clock import SystemClock
from pyrometer_kit.flags import Address
from pyrometer_kit.http_thread import ServerThread
from pyrometer_kit.webconfig import WebConfig
from pyrometer_simulator.http_call import call

if TYPE_CHECKING:
    from typing_extensions import Self


class Running:
    """A service with its server on a free port."""

    def __init__(
        self,
        store: Store,
        slack: WebSlack,
        prometheus: FakePrometheus | None = None,
        routing: Routing | None = None,
    ) -> None:
        self.service = Service(
            store,
            slack,
            "#gpu-alerts",
            prometheus=prometheus,
            style=Style(notice="SIMULATED CLUSTER"),
            clock=SystemClock(),
            reload=lambda: (routing or Routing("#gpu-alerts"), frozenset()),
        )
        self.server = ServerThread(self.service.routes(), WebConfig(), self.service.rejected)

    def __enter__(self) -> Self:
        self.server.start(Address("127.0.0.1", 0))
        self.service.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.stop()
        self.service.stop()

    def ask(self, path: str, data: bytes | None = None, method: str | None = None) -> tuple[int, bytes]:
        return call(f"http://127.0.0.1:{self.server.port}{path}", data, method=method or "")

    def incidents(self) -> list[dict[str, Any]]:
        return json.loads(self.ask("/api/v1/incidents")[1])["incidents"]
