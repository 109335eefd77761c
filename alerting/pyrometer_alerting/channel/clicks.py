"""Clicks and sent modals: durable before Slack is told that they are taken, then done in threads of their own.

Every replica takes them, whichever Slack has chosen; the leader does them. One that was under way in a crash is done
again, by handlers that notice what they have done already.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from typing import Any

from pyrometer_alerting.channel.interactions import Interactions
from pyrometer_alerting.incidents.inbox import Letter, Post
from pyrometer_alerting.incidents.storage.store import NotLeadingError, StoreError
from pyrometer_kit.clock import Clock

_log = logging.getLogger(__name__)

BOX = "clicks"
WORKERS = 4  # one person's silence, which asks Alertmanager, must not keep another's modal waiting
AGAIN_SECONDS = 0.5


class Clicks:
    """`take` may be called from any thread; each of the `WORKERS` threads runs `run`."""

    def __init__(self, inbox: Post, interactions: Interactions, clock: Clock) -> None:
        self._inbox, self._interactions, self._clock = inbox, interactions, clock
        self._stopping = threading.Event()

    def take(self, envelope: str, payload: Mapping[str, Any]) -> None:
        """Keep a click; it is durable when this returns.

        Raises:
            StoreError: it is not, and Slack must not be told that it is.
        """
        body = json.dumps({"envelope": envelope, "payload": payload}).encode()
        self._inbox.announce(self._inbox.put(body, self._clock.wall()))

    def run(self) -> None:
        """Do what was clicked, until stopped."""
        while (letter := self._inbox.next()) is not None and not self._stopping.is_set():
            self._handle(letter)

    def step(self) -> None:
        """Do what waits, where no thread runs."""
        for letter in self._inbox.left():
            self._handle(letter)

    def stop(self) -> None:
        """Let all `run` return; what is left is done after the next start, or by the next leader."""
        self._stopping.set()
        for _ in range(WORKERS):
            self._inbox.stop()

    def _handle(self, letter: Letter) -> None:
        while not self._stopping.is_set():
            try:
                document = json.loads(self._inbox.read(letter))
                self._do(str(document["envelope"]), document["payload"])
            except NotLeadingError:
                return  # it is the next leader's
            except StoreError as error:
                _log.error("clicks: %s", error)
                self._stopping.wait(AGAIN_SECONDS)
                continue
            except Exception:  # noqa: BLE001 - one click that cannot be done must not end the conversation
                _log.exception("clicks: one failed")
            self._inbox.remove(letter)
            return

    def _do(self, envelope: str, payload: Mapping[str, Any]) -> None:
        if self._interactions.is_done(envelope):  # Slack repeats what it saw no answer to
            return
        try:
            if payload.get("type") == "block_actions":
                self._interactions.clicked(payload)
            elif payload.get("type") == "view_submission":
                self._interactions.submitted(payload)
        except StoreError:
            raise
        except Exception:  # noqa: BLE001 - Slack did not show the answer; what was done is done
            _log.exception("clicks: %s failed", payload.get("type"))
        self._interactions.note_done(envelope)
