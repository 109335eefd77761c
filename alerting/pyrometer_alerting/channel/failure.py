"""Failures of a delivery by class, the same for Slack and for every other outlet."""

from __future__ import annotations

from enum import Enum


class Trouble(Enum):
    """The meaning of a failure for the queue (the method reference of chat.postMessage lists Slack's codes)."""

    RATE = "rate"  # wait, the attempt does not count
    GONE = "gone"  # our message was deleted
    AUTH = "auth"  # nothing will work until someone acts
    CHANNEL = "channel"  # nothing will work in this channel until someone acts
    PAYLOAD = "payload"  # never send the same content again
    AMBIGUOUS = "ambiguous"  # it may have worked
    SAFE = "safe"  # it has failed: retry


class DeliveryFailure(Exception):  # noqa: N818 - an answer, not a bug
    """A failed call; `retry_after` is seconds, for rate limits."""

    def __init__(self, trouble: Trouble, code: str, retry_after: float = 0.0) -> None:
        super().__init__(code)
        self.trouble, self.code, self.retry_after = trouble, code, retry_after
