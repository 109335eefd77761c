"""Deliver one outlet's part of the outbox in its own thread, so that a dead outlet delays no other.

Nothing is lost: an operation is marked `sending` on disk before the call, and is sent again, with the same ids, unless
the answer was stored. Nothing is shown twice if the receiver deduplicates by those ids.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from pyrometer_alerting.channel.blocks import Style
from pyrometer_alerting.channel.breaker import Breaker, DeliveryFailure, Trouble
from pyrometer_alerting.channel.delivery_loop import DeliveryLoop, Timing
from pyrometer_alerting.channel.incident_pictures import load_draw_incident
from pyrometer_alerting.channel.outlets import notice as notices
from pyrometer_alerting.channel.outlets.check import REMEDIES
from pyrometer_alerting.channel.outlets.notice import Entry, Notice
from pyrometer_alerting.channel.slack import LONGEST_WAIT_SECONDS
from pyrometer_alerting.channel.unheard import waits_unheard
from pyrometer_alerting.incidents.metrics import Metrics
from pyrometer_alerting.incidents.storage.operation import OUR_LIMIT, Operation
from pyrometer_alerting.incidents.storage.store import Store, StoreError, Transaction
from pyrometer_alerting.model.incident import Incident
from pyrometer_alerting.model.routing import Routing, Rules
from pyrometer_alerting.model.text import counted
from pyrometer_kit.clock import Clock
from pyrometer_kit.prometheus import Prometheus

_log = logging.getLogger(__name__)

Draw = Callable[[Incident, float], bytes | None]
CLOSED = "closed"  # of an operation's `ts`, the state that the outlet shows: open, acknowledged or closed
_SHORT = 1  # the degrade level at which only the title is sent


class _Task(NamedTuple):
    operation: Operation
    incident: Incident
    into: Incident | None
    event: str


class OutletCourier(DeliveryLoop):
    """The one thread that calls one outlet; `entry` is replaced when the configuration is read again."""

    def __init__(
        self,
        store: Store,
        entry: Entry,
        *,
        style: Style,
        clock: Clock,
        metrics: Metrics,
        draw: Draw,
        timing: Timing | None = None,
    ) -> None:
        super().__init__(f"outlet {entry.name}", clock, timing)
        self.entry = entry
        self._store, self._style, self._metrics, self._draw = store, style, metrics, draw
        self._breaker = Breaker(self._timing.again)
        self._free_at = 0.0
        self.blocked = ""
        """The failure's code while somebody must act; empty otherwise."""

    def renew(self, entry: Entry) -> None:
        """Take over a new configuration; operations refused with the old one are retried at once."""
        self.entry, self._free_at = entry, 0.0
        self._breaker.shorten()
        self.wake()

    def recover(self) -> None:
        """Send again what the last process was sending when it died."""
        now = self._clock.wall()
        with self._store.transaction() as tx:
            box = tx.outbox_of(self.entry.name)
            box.cap_waits(now, now + LONGEST_WAIT_SECONDS)  # the clock may have been set back meanwhile
            for operation in box.interrupted():
                box.retry_at(operation.op_id, now, "interrupted")

    def deliver_due(self, now: float) -> float:
        """Process the oldest operation that is due; return the seconds until the next step."""
        closed_until = max(self._free_at, self._breaker.open_until)
        if now < closed_until:
            return min(closed_until - now, self._timing.idle)
        with self._store.transaction() as tx:
            operation = next(iter(tx.outbox_of(self.entry.name).due()), None)
        if operation is None:
            return self._timing.idle
        if operation.not_before > now:
            return min(operation.not_before - now, self._timing.idle)
        self._process(operation, now)
        return 0.0

    def shorten_waits(self, now: float) -> None:
        """See `DeliveryLoop.shorten_waits`."""
        self._free_at = 0.0
        self._breaker.shorten()
        with self._store.transaction() as tx:
            tx.outbox_of(self.entry.name).cap_waits(now, now + self._timing.idle)

    def _process(self, operation: Operation, now: float) -> None:
        try:
            with self._store.transaction() as tx:
                task = self._task(tx, operation, now)
            if task is not None:
                self._deliver(task, now)
        except StoreError:
            raise
        except Exception:  # noqa: BLE001 - one notice that cannot be built must not keep the others from being sent
            _log.exception("outlet %s: operation %s failed", self.entry.name, operation.op_id)
            with self._store.transaction() as tx:
                tx.outbox_of(self.entry.name).retry_at(operation.op_id, now + self._timing.probe, "internal error")

    def _task(self, tx: Transaction, operation: Operation, now: float) -> _Task | None:
        """Return the event to send; None where there is none, or not yet."""
        box = tx.outbox_of(self.entry.name)
        incident = tx.incident(operation.incident_id)
        if incident is None:
            box.discard(operation.incident_id)
            return None
        if waits_unheard(box, operation, incident, now):
            return None
        event = self._event(operation, incident)
        if not event:
            box.skip(operation)
            return None
        free = box.free_at(incident.id, now)
        if free > now:
            box.postpone(operation.op_id, free, OUR_LIMIT)
            return None
        return _Task(operation, incident, tx.incident(incident.joined_into), event)

    def _event(self, operation: Operation, incident: Incident) -> str:
        """Return the event to report to the outlet; empty if there is none."""
        shown, open_now = operation.ts, notices.is_open(incident)
        if not open_now:
            if shown == CLOSED:
                return ""
            heard = operation.sent_at is not None
            wanted = heard or (self.entry.wants(incident) and not self.entry.outlet.pages)
            return notices.RESOLVED if wanted else ""
        if shown in (None, CLOSED):
            return notices.OPENED if self.entry.wants(incident) else ""
        if operation.shown == notices.situation(incident):
            return ""
        newly_acknowledged = incident.acknowledged and shown != notices.ACKNOWLEDGED
        return notices.ACKNOWLEDGED if newly_acknowledged else notices.UPDATED

    def _deliver(self, task: _Task, now: float) -> None:
        notice = self._notice(task, now)
        operation = task.operation
        with self._store.transaction() as tx:
            box = tx.outbox_of(self.entry.name)
            if box.get(operation.op_id) != operation:
                return  # it has changed meanwhile: the next step builds it again
            box.start(operation.op_id, now, notice.subject)
        self._store.check_leading()
        try:
            self.entry.outlet.send(notice)
        except DeliveryFailure as failure:
            self._failed(operation, failure)
            return
        self._count("ok")
        self._breaker.close()
        self.blocked = ""
        now = self._clock.wall()
        state = {notices.RESOLVED: CLOSED, notices.ACKNOWLEDGED: notices.ACKNOWLEDGED}.get(notice.event)
        state = state or (operation.ts if operation.ts not in (None, CLOSED) else notices.OPENED)
        with self._store.transaction() as tx:
            box = tx.outbox_of(self.entry.name)
            box.finish(operation, notice.thread, str(state), notices.situation(task.incident), now)
            box.restore(operation.op_id)
            box.note_call(operation.incident_id, now)

    def _notice(self, task: _Task, now: float) -> Notice:
        rules = Routing(channels={"": Rules(self.entry.labels)})
        incident = rules.redacted(replace(task.incident, channel=""))
        into = None if task.into is None else rules.redacted(replace(task.into, channel=""))
        message = notices.message_of(incident, into, self._style)
        title = notices.title_of(incident, message)
        operation = task.operation
        delivery = notices.delivery_id(task.incident, operation.sent)
        return Notice(
            task.event,
            incident,
            message,
            title,
            key=incident.id,
            delivery=delivery,
            thread=operation.channel or delivery,
            subject=operation.target or notices.subject_of(title),
            short=operation.degrade >= _SHORT,
            picture=self._picture(incident, now),
        )

    def _picture(self, incident: Incident, now: float) -> bytes | None:
        """Draw the run's chart where it can be shown; a notice without a chart is better than none."""
        if not self.entry.outlet.takes_pictures or incident.diagnosis is None or incident.diagnosis.curve is None:
            return None
        try:
            return self._draw(incident, now)
        except Exception as error:  # noqa: BLE001 - Matplotlib may be missing, Prometheus away, a number odd
            _log.warning("outlet %s: no chart: %s", self.entry.name, type(error).__name__)
            return None

    def _failed(self, operation: Operation, failure: DeliveryFailure) -> None:
        now = self._clock.wall()
        name = self.entry.name
        _log.warning("outlet %s: %s (%s)", name, failure.code, failure.trouble.value)
        self._count(failure.code)
        self._breaker.record(failure, now)
        if failure.trouble is Trouble.AUTH:
            self.blocked, self._free_at = failure.code, now + self._timing.probe
        elif failure.trouble is Trouble.RATE:
            self._free_at = now + failure.retry_after
        with self._store.transaction() as tx:
            box = tx.outbox_of(name)
            if failure.trouble in (Trouble.RATE, Trouble.AUTH):
                box.retry_at(operation.op_id, self._free_at, failure.code, refund=True)
            elif failure.trouble in (Trouble.SAFE, Trouble.AMBIGUOUS, Trouble.UNKNOWN):
                box.retry_at(operation.op_id, now + self._timing.again(operation.attempts), failure.code)
            elif operation.degrade < _SHORT:
                box.degrade(operation.op_id, _SHORT, failure.code, now)
            else:
                box.give_up(operation.op_id, failure.code)

    def _count(self, outcome: str) -> None:
        self._metrics.outlet_calls.labels(self.entry.name, self.entry.kind, outcome).inc()


Gauges = dict[str, dict[tuple[tuple[str, str], ...], float]]


class OutletCouriers:
    """Starts and stops couriers as the configuration names outlets."""

    def __init__(
        self, store: Store, *, style: Style, clock: Clock, metrics: Metrics, prometheus: Prometheus | None
    ) -> None:
        self._store, self._style, self._clock, self._metrics = store, style, clock, metrics
        self._draw: Draw = _draws(prometheus)
        self._couriers: dict[str, OutletCourier] = {}
        self._threads: dict[str, threading.Thread] = {}
        self._running = self._adopted = False

    def apply(self, entries: Sequence[Entry]) -> None:
        """Take over the configured outlets: new ones get all firing incidents, removed ones are forgotten.

        Raises:
            StoreError: SQLite or the disk failed.
        """
        wanted = {entry.name: entry for entry in entries}
        self._store.outlets = tuple(wanted)
        self._adopted = False
        if self._store.engine.leads():
            self._adopt()
        for name in self._couriers.keys() - wanted.keys():
            self._couriers.pop(name).stop()
            self._threads.pop(name, None)
        for name, entry in wanted.items():
            if name in self._couriers:
                if self._couriers[name].entry != entry:  # otherwise a reload would call an outlet that is down
                    self._couriers[name].renew(entry)
                continue
            self._couriers[name] = OutletCourier(
                self._store, entry, style=self._style, clock=self._clock, metrics=self._metrics, draw=self._draw
            )
            if self._running:
                self._start(name)

    def _adopt(self) -> None:
        with self._store.transaction() as tx:
            tx.adopt_outlets(self._store.outlets, self._clock.wall())
        self._adopted = True

    def start(self) -> None:
        """Deliver from now on.

        Raises:
            StoreError: the outlets could not be made known to the database.
        """
        if not self._adopted:
            self._adopt()
        self._running = True
        for name in self._couriers:
            self._start(name)

    def _start(self, name: str) -> None:
        run = self._couriers[name].run
        self._threads[name] = threading.Thread(target=run, daemon=True, name=f"outlet {name}")
        self._threads[name].start()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the configured outlets."""
        return tuple(self._couriers)

    def wake(self) -> None:
        """Check the outbox now."""
        for courier in list(self._couriers.values()):
            courier.wake()

    def stop(self) -> None:
        """Finish the calls in progress, keep the rest for the next start."""
        for courier in self._couriers.values():
            courier.stop()

    def join(self, seconds: float) -> None:
        """Wait for the threads to end, each for at most this long."""
        for thread in self._threads.values():
            thread.join(timeout=seconds)

    def gauges(self, tx: Transaction, now: float) -> Gauges:
        """Return the present gauges of all outlets."""
        gauges: Gauges = {}
        for name, courier in list(self._couriers.items()):
            depth, oldest, dead = tx.outbox_of(name).depth()
            label = (("outlet", name),)
            age = max(now - oldest, 0.0) if oldest is not None else 0.0
            values: Mapping[str, float] = {"depth": depth, "oldest_age_seconds": age, "dead": dead}
            for gauge, value in values.items():
                gauges.setdefault(f"pyrometer_alerting_outlet_{gauge}", {})[label] = value
            blocked = gauges.setdefault("pyrometer_alerting_outlet_blocked", {})
            blocked[(*label, ("reason", courier.blocked))] = float(bool(courier.blocked))
        return gauges

    def trouble(self, tx: Transaction, now: float) -> list[str]:
        """Return a line for the page for each outlet that does not accept its notices."""
        lines = []
        for name, courier in list(self._couriers.items()):
            depth, oldest, _dead = tx.outbox_of(name).depth()
            if courier.blocked:
                what = f"{courier.blocked}: {REMEDIES[Trouble.AUTH]}"
                lines.append(f"Outlet {name} refuses everything: {what}. {counted(depth, 'notice')} queued.")
            elif oldest is not None and now - oldest > 30:
                waits = f"{counted(depth, 'notice')} waiting for outlet {name}, the oldest for {now - oldest:.0f} s"
                why = ", ".join(tx.outbox_of(name).reasons(now))
                lines.append(f"{waits} ({why})." if why else f"{waits}.")
        return lines


def _draws(prometheus: Prometheus | None) -> Callable[..., bytes | None]:
    """Return the function that draws a run's chart; None without a Prometheus to query."""
    if prometheus is None:
        return lambda _incident, _now: None
    return lambda incident, now: load_draw_incident()(prometheus, incident, now)
