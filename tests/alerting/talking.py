"""The service connected to the fake Slack by Socket Mode, and its users."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from alerting_fakes import FakeAlertmanager, body, wait_until

from pyrometer_alerting.app.service import WEBHOOK_PATH, Service
from pyrometer_alerting.channel.blocks import Style
from pyrometer_alerting.channel.slack import WebSlack
from pyrometer_alerting.incidents.reconcile import Pace
from pyrometer_alerting.incidents.storage.store import Store
from pyrometer_alerting.model.routing import Routing
from pyrometer_kit.clock import SystemClock
from pyrometer_kit.http_message import Request
from pyrometer_simulator.slack import FakeSlack

ALICE, BOB = "U0ALICE", "U0BOB"


class Talking:
    """The service with its ears open."""

    def __init__(self, tmp_path: Path, slack: FakeSlack) -> None:
        self.slack, self.alertmanager = slack, FakeAlertmanager()
        self.service = Service(
            Store(tmp_path / "s"),
            WebSlack("xoxb-test", slack.url),
            "#gpu-alerts",
            prometheus=None,
            style=Style(),
            clock=SystemClock(),
            alertmanagers=[self.alertmanager],
            reload=lambda: (Routing("#gpu-alerts"), frozenset({ALICE})),
            app_token="xapp-fake-token",
        )
        self.service.reconciler._pace = Pace(every=0.2, soon=0.05)
        self.service.start()
        wait_until(lambda: slack.app.socket.connected)

    def receive(self, *alerts: dict[str, Any], **more: Any) -> None:
        self.alertmanager.knows(*alerts)
        webhook = self.service.routes()[WEBHOOK_PATH].handler
        assert webhook(Request("POST", WEBHOOK_PATH, {}, body(*alerts, **more))).status == 200
        wait_until(lambda: self.slack.messages("gpu-alerts"))

    @property
    def message(self) -> dict[str, Any]:
        return self.slack.messages("gpu-alerts")[0]

    def press(self, action: str, user: str = ALICE) -> Any:
        """Press a button of the message or of a reply in its thread."""
        name = f"pyrometer_{action}"
        shown = [self.message, *self.message["replies"]]
        return self.slack.app.press(
            next((each for each in shown if name in str(each["blocks"])), self.message), name, user
        )

    def whispers(self) -> list[str]:
        return [each["text"] for each in self.slack.app.ephemerals]

    def audit(self) -> list[tuple[str, str]]:
        with self.service._store.transaction() as tx:
            return [(action, user) for _at, user, action, _incident, _detail in tx.audits()]
