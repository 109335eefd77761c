"""Pictures on their way to Slack: uploaded unseen, and shown by a message only once Slack has processed them."""

from __future__ import annotations

import logging
from collections.abc import Callable

from pyrometer_alerting.deliver.slack import Slack

_log = logging.getLogger(__name__)

READY_WAITS = (1.0, 2.0, 4.0, 8.0)  # Slack processes an upload in 1 to 8 s


class Gallery:
    """`sleep` waits for so many seconds."""

    def __init__(self, slack: Slack, sleep: Callable[[float], object]) -> None:
        self._slack, self.sleep = slack, sleep

    def hang(self, name: str, content: bytes, title: str) -> str | None:
        """Slack's id of the picture; None where Slack does not get ready with it. Raises SlackFailure."""
        file_id = self._slack.upload(name, content, title)
        if self._ready(file_id):
            return file_id
        _log.warning("pictures: Slack has not processed %s in time: the message stays without", file_id)
        return None

    def _ready(self, file_id: str) -> bool:
        if self._slack.is_ready(file_id):
            return True
        for wait in READY_WAITS:
            self.sleep(wait)
            if self._slack.is_ready(file_id):
                return True
        return False
