"""The users of the fake Slack: they press buttons, fill in modals and type commands, over Socket Mode."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from pyrometer_simulator.slack_blocks import SlackError, check_message, check_view
from pyrometer_simulator.slack_channel import TEAM
from pyrometer_simulator.slack_socket import Ack, SocketServer

APP_METHODS = ("apps.connections.open", "views.open", "chat.postEphemeral")
_TRIGGER_SECONDS = 3.0  # lifetime of a trigger id


class SlackApp:
    """The methods for an app-level token; `views` and `ephemerals` are visible to users."""

    def __init__(self) -> None:
        self.socket = SocketServer()
        self.patience = 10.0
        """Seconds for which a person waits for the ack."""
        self.views: list[dict[str, Any]] = []
        self.ephemerals: list[dict[str, Any]] = []
        self._triggers: dict[str, float] = {}

    def answer(self, method: str, args: Mapping[str, Any]) -> dict[str, Any]:
        """Handle one of APP_METHODS.

        Raises:
            SlackError: Slack would refuse the call.
        """
        handlers: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
            "apps.connections.open": lambda _args: {"url": self.socket.url},
            "views.open": self._open,
            "chat.postEphemeral": self._ephemeral,
        }
        return handlers[method](args)

    def press(
        self, message: Mapping[str, Any], action_id: str, user: str, channel: str = "C000000001", team: str = TEAM
    ) -> Ack:
        """Press a button of a message and wait for the app's ack.

        Raises:
            LookupError: the message has no such button.
            TimeoutError: the app does not answer.
            ConnectionError: no app is connected.
        """
        buttons = [
            element
            for block in message["blocks"]
            if block["type"] == "actions"
            for element in block["elements"]
            if element["action_id"] == action_id
        ]
        if not buttons:
            raise LookupError(action_id)
        action = {"type": "button", "action_id": action_id, "value": buttons[0]["value"]}
        return self._interact(
            {
                "type": "block_actions",
                "user": {"id": user, "username": user.lower(), "team_id": team},
                "team": {"id": team, "domain": "fake"},
                "actions": [action],
                "channel": {"id": channel},
                "message": {"ts": message["ts"]},
            }
        )

    def submit(self, view: Mapping[str, Any], user: str, values: Mapping[str, Any] | None = None) -> Ack:
        """Press the button of a modal and wait for the app's ack.

        Raises:
            TimeoutError: the app does not answer.
            ConnectionError: no app is connected.
        """
        shown = dict(view) | {"state": {"values": dict(values or {})}}
        return self._interact(
            {
                "type": "view_submission",
                "user": {"id": user, "username": user.lower(), "team_id": TEAM},
                "team": {"id": TEAM, "domain": "fake"},
                "view": shown,
            }
        )

    def command(self, text: str, user: str) -> Ack:
        """Type `/pyrometer <text>` and wait for the app's ack.

        Raises:
            TimeoutError: the app does not answer.
            ConnectionError: no app is connected.
        """
        payload = {"command": "/pyrometer", "text": text, "user_id": user, "user_name": user.lower(), "team_id": TEAM}
        return self._wait(self.socket.send("slash_commands", payload | {"channel_id": "C000000001"}))

    def _interact(self, payload: dict[str, Any]) -> Ack:
        trigger = uuid.uuid4().hex
        self._triggers[trigger] = time.monotonic()
        return self._wait(self.socket.send("interactive", payload | {"trigger_id": trigger}))

    def _wait(self, envelope: str) -> Ack:
        deadline = time.monotonic() + self.patience
        while envelope not in self.socket.acks:
            if time.monotonic() > deadline:
                raise TimeoutError("the app never answered")
            time.sleep(0.005)
        return self.socket.acks[envelope]

    def _open(self, args: Mapping[str, Any]) -> dict[str, Any]:
        made = self._triggers.pop(str(args.get("trigger_id", "")), 0.0)
        if time.monotonic() - made > _TRIGGER_SECONDS:
            raise SlackError("expired_trigger_id")
        view = args.get("view")
        check_view(view)
        assert isinstance(view, Mapping)  # noqa: S101 - checked
        self.views.append(dict(view) | {"id": f"V{len(self.views) + 1}"})
        return {"view": self.views[-1]}

    def _ephemeral(self, args: Mapping[str, Any]) -> dict[str, Any]:
        check_message(args)
        if not args.get("user"):
            raise SlackError("user_not_in_channel")
        self.ephemerals.append(dict(args))
        return {"message_ts": f"{time.time():.6f}"}
