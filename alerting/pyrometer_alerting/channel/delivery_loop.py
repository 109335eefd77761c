"""One delivery thread: recover what a crash left, then deliver step by step, within the limits of calls."""

from __future__ import annotations

import logging
import random
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from pyrometer_alerting.channel.breaker import Breaker, SlackFailure, Trouble
from pyrometer_alerting.channel.slack import Slack
from pyrometer_alerting.incidents.storage.operation import Operation
from pyrometer_alerting.incidents.storage.store import StoreError
from pyrometer_kit.clock import Clock


@dataclass(frozen=True)
class Timing:
    """Seconds. When a post appears in the history is undocumented: hence two lookups, 2 s and 10 s later."""

    first_look: float = 2.0
    second_look: float = 10.0
    probe: float = 60.0
    backoff: float = 1.0
    backoff_limit: float = 60.0
    idle: float = 15.0  # also the time until a replay from the command line is noticed
    sweep: float = 60.0  # after posting again: by then a delayed first attempt has arrived

    def again(self, attempts: int) -> float:
        """Return the backoff, 1, 2, 4 ... 60 s, each shortened by up to half at random to spread retries."""
        longest = min(self.backoff * float(2 ** min(attempts, 10)), self.backoff_limit)
        return longest * (1 - random.random() / 2)  # noqa: S311 - spreading load needs no secret


class SendLimits:
    """Tracks what Slack refuses at present; `channel` is the service's own."""

    def __init__(self, channel: str, timing: Timing) -> None:
        self._channel, self._timing, self._probe_seconds = channel, timing, timing.probe
        self._free_at: dict[tuple[str, str], float] = {}  # (method, channel if limited per channel) -> end of its limit
        self._blocked: tuple[SlackFailure, float] | None = None  # (reason, time of the next attempt)
        self._parked: dict[str, tuple[str, float]] = {}  # channel -> (reason, time of the next attempt)
        self.breaker = Breaker(timing.again)

    @property
    def blocked(self) -> str:
        """Slack's error code while nothing can be sent; empty otherwise."""
        if self._blocked:
            return self._blocked[0].code
        return self._parked[self._channel][0] if self._channel in self._parked else ""

    @property
    def parked(self) -> dict[str, str]:
        """Channels that cannot be reached, with Slack's error code; new messages go to the default channel."""
        return {channel: why for channel, (why, _until) in self._parked.items() if channel != self._channel}

    @property
    def blocked_until(self) -> float:
        """The time of the next attempt after a failure that blocks everything; 0 without one."""
        return self._blocked[1] if self._blocked is not None else 0.0

    def target(self, operation: Operation) -> str:
        """Return where to post: the message's channel, or the default channel while that one cannot be reached."""
        target = operation.target or self._channel
        return self._channel if target in self._parked and target != self._channel else target

    def free_at(self, operation: Operation) -> float:
        """Return when the operation may be tried: a post can go to another channel, an edit must wait for its own."""
        where = self.target(operation) if operation.ts is None and operation.kind == "root" else operation.target
        parked_until = self._parked.get(where or self._channel, ("", 0.0))[1]
        limited_until = self._free_at.get(self._limit_of(operation), 0.0)
        return max(operation.not_before, limited_until, parked_until, self.breaker.open_until)

    def record_failure(self, operation: Operation, failure: SlackFailure, now: float) -> None:
        """Note how long this method, this channel or everything must wait."""
        self.breaker.record(failure, now)
        if failure.trouble is Trouble.RATE:
            self._free_at[self._limit_of(operation)] = now + failure.retry_after
        if failure.trouble is Trouble.AUTH:
            self._blocked = (failure, now + self._probe_seconds)
        if failure.trouble is Trouble.CHANNEL:
            has_place = operation.ts is not None or operation.kind == "reply"
            where = (operation.target or self._channel) if has_place else self.target(operation)
            self._parked[where] = (failure.code, now + self._probe_seconds)

    def record_answer(self) -> None:
        """Record that Slack answers."""
        self.breaker.close()

    def record_success(self, operation: Operation) -> None:
        """Note that Slack and its channel can be reached."""
        self.record_answer()
        self._parked.pop(self.target(operation), None)

    def shorten(self, now: float) -> None:
        """End all waiting: after the clock was set back, it would last longer by that much."""
        self._free_at.clear()
        self._parked.clear()
        self.breaker.shorten()
        if self._blocked is not None:
            self._blocked = (self._blocked[0], now)

    def probe(self, slack: Slack, now: float, count: Callable[[str, str], None]) -> bool:
        """Return whether sending may be tried again; checks the token if that was the trouble."""
        if self._blocked is None:
            return True
        failure, until = self._blocked
        if now < until:
            return False
        if failure.trouble is Trouble.AUTH:
            try:
                slack.check()
            except SlackFailure as again:
                count("auth.test", again.code)
                self._blocked = (failure, now + max(self._probe_seconds, again.retry_after))
                return False
            count("auth.test", "ok")
        self._blocked = None
        return True

    def _limit_of(self, operation: Operation) -> tuple[str, str]:
        """Return the key of its rate limit: Slack limits posts per channel, everything else per method."""
        method = slack_method(operation)
        return method, self.target(operation) if method == "chat.postMessage" else ""


def slack_method(operation: Operation) -> str:
    """Return the Slack method that the operation needs next, since rate limits are per method."""
    if operation.state == "lookup":
        return "conversations.replies" if operation.kind == "reply" else "conversations.history"
    return "chat.update" if operation.edits else "chat.postMessage"


_log = logging.getLogger(__name__)


class DeliveryLoop(ABC):
    """Deliver operations of the outbox in a thread of its own; its log lines begin with `name`."""

    def __init__(self, name: str, clock: Clock, timing: Timing | None) -> None:
        self._loop_name, self._clock, self._timing = name, clock, timing or Timing()
        self._stepped_at = 0.0
        self._wake = threading.Event()
        self._stopped = False

    @abstractmethod
    def recover(self) -> None:
        """Retry or look up the operations that the last process was sending when it died."""

    @abstractmethod
    def deliver_due(self, now: float) -> float:
        """Process the oldest operation that is due; return the seconds until the next step."""

    @abstractmethod
    def shorten_waits(self, now: float) -> None:
        """Shorten all waiting times: after the clock was set back, they would last longer by that much."""

    def step(self) -> float:
        """Deliver once; return the seconds until the next step."""
        now = self._clock.wall()
        if now < self._stepped_at:
            self.shorten_waits(now)
        self._stepped_at = now
        return self.deliver_due(now)

    def wake(self) -> None:
        """Check the outbox now."""
        self._wake.set()

    def stop(self) -> None:
        """Let `run` return after the call in progress."""
        self._stopped = True
        self._wake.set()

    def run(self) -> None:
        """Deliver until stopped."""
        recovered = False
        while not self._is_stopped():
            try:
                if not recovered:
                    self.recover()
                    recovered = True
                wait = self.step()
            except StoreError as error:
                # A call may have succeeded without its outcome being stored: treat it like a crash.
                _log.error("%s: %s", self._loop_name, error)
                recovered, wait = False, self._timing.backoff
            if wait > 0:
                self._wake.wait(wait)

    def _is_stopped(self) -> bool:
        """Return whether to stop; the event is cleared first, or a `stop` in between would be missed."""
        self._wake.clear()
        return self._stopped
