"""The worker that applies deliveries in the order of their arrival."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from pyrometer_alerting.incidents.alertmanager_payload import Delivery, parse
from pyrometer_alerting.incidents.inbox import Letter, Post
from pyrometer_alerting.incidents.intake import Intake, Outcome
from pyrometer_alerting.incidents.metrics import Metrics
from pyrometer_alerting.incidents.storage.store import NotLeadingError, StoreError
from pyrometer_kit.clock import Clock

_log = logging.getLogger(__name__)

# An ordinary delivery is applied by then, so that a query after the answer sees its alerts.
ANSWER_SECONDS = 0.3
ORDINARY_ALERTS = 2_000
AGAIN_SECONDS = 1.0  # while the store cannot be written
ATTEMPTS = 3  # for a delivery that fails for a reason other than the store


@dataclass
class _Task:
    letter: Letter
    delivery: Delivery | None  # None: left by an earlier process or taken by another replica, still to be parsed
    tried: threading.Event = field(default_factory=threading.Event)


class Deliveries:
    """Runs in its own thread; `take` may be called from any. Calls `changed` after each delivery."""

    def __init__(
        self, inbox: Post, intake: Intake, *, clock: Clock, metrics: Metrics, changed: Callable[[Outcome], None]
    ) -> None:
        self._inbox, self._intake, self._clock, self._metrics, self._changed = inbox, intake, clock, metrics, changed
        self._parsed: dict[Letter, _Task] = {}
        self._stopping = threading.Event()
        self._running = False
        self._parsing = threading.Lock()  # a large delivery takes 100 MB and more while it is parsed
        self.stuck = ""
        """Why the delivery whose turn it is cannot be stored; empty while they can."""

    def take(self, body: bytes) -> None:
        """Store a delivery; it is durable when this returns, and applied at once or soon.

        Raises:
            BadDelivery: it is not from Alertmanager.
            StoreError: none of it was stored.
        """
        with self._parsing:
            delivery = parse(body)
        if delivery.unreadable:
            self._metrics.rejected.labels("alert").inc(len(delivery.unreadable))
            _log.warning("webhook: left out %d alerts: %s", len(delivery.unreadable), delivery.unreadable[0])
        letter = self._inbox.put(body, self._clock.wall())
        if not self._running:
            self._inbox.announce(letter)
            return
        task = self._parsed[letter] = _Task(letter, delivery)
        self._inbox.announce(letter)
        if len(delivery.alerts) <= ORDINARY_ALERTS:
            task.tried.wait(ANSWER_SECONDS)

    def run(self) -> None:
        """Apply deliveries until stopped; those that are left then are applied after the next start."""
        self._running = True
        while (letter := self._inbox.next()) is not None and not self._stopping.is_set():
            self._apply(self._parsed.pop(letter, _Task(letter, None)))

    def step(self) -> None:
        """Apply waiting deliveries when no thread runs."""
        for letter in self._inbox.left():
            self._apply(_Task(letter, None))

    def stop(self) -> None:
        """Let `run` return after the delivery in progress."""
        self._stopping.set()
        self._inbox.stop()

    def _apply(self, task: _Task) -> None:
        """Apply one delivery, retrying the store as often as needed."""
        failed = 0
        while not self._stopping.is_set():
            try:
                delivery = task.delivery or parse(self._inbox.read(task.letter))
                outcome = self._intake.apply(delivery, task.letter.received_at)
            except NotLeadingError:
                task.tried.set()
                return  # it is the next leader's
            except StoreError as error:
                _log.error("deliveries: %s", error)
                self.stuck = str(error)
                task.tried.set()  # it is on disk, and it is unknown how long this lasts
            except Exception:  # noqa: BLE001 - one delivery that cannot be applied must not keep all others waiting
                _log.exception("deliveries: %s", task.letter.path.name)
                failed += 1
            else:
                self.stuck = ""
                self._inbox.remove(task.letter)
                task.tried.set()
                self._changed(outcome)
                return
            if failed >= ATTEMPTS:
                self._give_up(task)
                return
            self._stopping.wait(AGAIN_SECONDS)

    def _give_up(self, task: _Task) -> None:
        self._metrics.rejected.labels("failed").inc()
        self._inbox.set_aside(task.letter)
        _log.error("deliveries: %s can't be applied and is set aside", task.letter.path.name)
