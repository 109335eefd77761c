"""Buttons and commands over Socket Mode: the service connects to Slack, so it needs no public address."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from slack_sdk import WebClient
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.socket_mode.builtin.client import SocketModeClient
from slack_sdk.socket_mode.client import BaseSocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.response import SocketModeResponse

from pyrometer_alerting.channel.breaker import Breaker, SlackFailure, Trouble
from pyrometer_alerting.channel.clicks import Clicks
from pyrometer_alerting.channel.interactions import Interactions
from pyrometer_alerting.incidents.storage.store import StoreError
from pyrometer_kit.clock import Clock
from pyrometer_kit.flags import LOOPBACK

_log = logging.getLogger(__name__)

AGAIN_SECONDS = 10.0


class _Client(SocketModeClient):
    """Asks for a new connection only when the breaker lets it: slack_sdk alone tries every few seconds for ever."""

    breaker: Breaker
    clock: Clock
    read_token: Callable[[], str] = str

    def issue_new_wss_url(self) -> str:
        """Call apps.connections.open.

        Raises:
            SlackClientError, OSError: it failed, or Slack is away and was not called.
        """
        now = self.clock.wall()
        if now < self.breaker.open_until:
            raise SlackClientError(f"Slack is unreachable, next attempt in {self.breaker.open_until - now:.0f} s")
        self.app_token = self.read_token() or self.app_token  # it may have been replaced meanwhile
        try:
            address = super().issue_new_wss_url()
        except SlackApiError:
            raise  # Slack is there, and refuses
        except (SlackClientError, OSError) as error:
            self.breaker.record(SlackFailure(Trouble.SAFE, type(error).__name__), now)
            raise
        self.breaker.close()
        return address


class Listener:
    """Keeps one connection to Slack and passes its requests to the interactions."""

    def __init__(
        self,
        app_token: str,
        web: WebClient,
        interactions: Interactions,
        clicks: Clicks,
        *,
        breaker: Breaker,
        clock: Clock,
        read_token: Callable[[], str] = str,
    ) -> None:
        self._read_token = read_token
        self._app_token, self._web, self._interactions, self._clicks = app_token, web, interactions, clicks
        self._breaker, self._clock = breaker, clock
        self._client: SocketModeClient | None = None
        self._stopping = threading.Event()

    @property
    def connected(self) -> bool:
        """True while a click would arrive."""
        return self._client is not None and self._client.is_connected()

    def run(self) -> None:
        """Connect, retrying until it works; after that the client reconnects on its own."""
        quiet = logging.getLogger("pyrometer_alerting.slack_sdk")
        client = _Client(self._app_token, logger=quiet, web_client=self._web, concurrency=4)
        client.breaker, client.clock, client.read_token = self._breaker, self._clock, self._read_token
        if urlsplit(self._web.base_url).hostname in LOOPBACK:
            client.proxy = None  # a proxy from the environment cannot reach our loopback
        client.socket_mode_request_listeners.append(self._on_request)
        self._client = client
        while not self._stopping.is_set() and not client.is_connected():
            try:
                client.connect_to_new_endpoint()
            except (SlackClientError, OSError, ValueError) as error:
                _log.warning("socket mode: %s: retrying", type(error).__name__)
            if not client.is_connected():
                self._stopping.wait(AGAIN_SECONDS)
        self._stopping.wait()
        client.auto_reconnect_enabled = False
        if client.current_session is not None and client.current_session.sock is not None:
            with contextlib.suppress(OSError):  # otherwise its reader notices only after its timeout of 3 s
                client.current_session.sock.shutdown(socket.SHUT_RDWR)
        client.closed = True
        client.message_queue.put(None)  # otherwise its reader notices only after its timeout of 1 s
        client.close()

    def stop(self) -> None:
        """Close the connection."""
        self._stopping.set()

    def _on_request(self, client: BaseSocketModeClient, request: SocketModeRequest) -> None:
        """Keep a click, then acknowledge it; the work comes later, since Slack waits only three seconds."""
        payload: Mapping[str, Any] = request.payload or {}
        if request.type == "interactive":
            try:
                self._clicks.take(request.envelope_id, payload)
            except StoreError as error:
                _log.error("socket mode: %s: Slack reports the click as failed, or sends it again", error)
                return
        command = request.type == "slash_commands"
        try:
            answer = self._interactions.command(payload) if command else None
        except Exception:  # noqa: BLE001 - one question must not end the conversation
            _log.exception("socket mode: command failed")
            answer = {"response_type": "ephemeral", "text": "That failed: see the service's log."}
        client.send_socket_mode_response(SocketModeResponse(envelope_id=request.envelope_id, payload=answer))
