"""The meaning of a failed call, and the circuit breaker: one for all calls to Slack, and one for each other outlet.

While Slack is down, one call at a time tries it. If each operation waited on its own, hundreds of messages, look-ups,
duplicate checks, pictures and connections would make many calls a second to a Slack that can't answer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
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
    UNKNOWN = "unknown"  # an answer that no table lists: this content waits and is tried again, all other goes on


class DeliveryFailure(Exception):  # noqa: N818 - an answer, not a bug
    """A failed call; `retry_after` is seconds, for rate limits."""

    def __init__(self, trouble: Trouble, code: str, retry_after: float = 0.0) -> None:
        super().__init__(code)
        self.trouble, self.code, self.retry_after = trouble, code, retry_after


class SlackFailure(DeliveryFailure):
    """A failed call to Slack."""


AWAY = "slack_away"  # the code for a call that was not made


class Breaker:
    """Counts consecutive failures of any kind. May be used from any thread; times are Unix seconds."""

    def __init__(self, again: Callable[[int], float]) -> None:
        """Wait for `again(failures)` seconds after each failure."""
        self._again, self._failures, self._open_until = again, 0, 0.0
        self._lock = threading.Lock()

    @property
    def open_until(self) -> float:
        """The time of the next call; 0 while Slack answers."""
        return self._open_until

    def record(self, failure: DeliveryFailure, now: float) -> None:
        """Note a failed call: an error that Slack itself returned shows that it answers."""
        if failure.trouble not in (Trouble.SAFE, Trouble.AMBIGUOUS):
            self.close()
            return
        with self._lock:
            self._open_until = now + self._again(self._failures)
            self._failures += 1

    def close(self) -> None:
        """Record that Slack answers."""
        with self._lock:
            self._failures, self._open_until = 0, 0.0

    def shorten(self) -> None:
        """End the waiting: after the clock was set back, it would last longer by that much."""
        with self._lock:
            self._open_until = 0.0

    def check(self, now: float) -> None:
        """Raise SlackFailure, without a call, while Slack is down."""
        if now < self._open_until:
            raise SlackFailure(Trouble.SAFE, AWAY, self._open_until - now)
