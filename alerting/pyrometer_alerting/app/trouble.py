"""The service's own troubles: what its page says of them, and whether anything can be written."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import NamedTuple

from pyrometer_alerting.channel.courier import Courier
from pyrometer_alerting.channel.outlets.courier import OutletCouriers
from pyrometer_alerting.channel.slack_remedies import with_remedy
from pyrometer_alerting.incidents.deliveries import Deliveries
from pyrometer_alerting.incidents.intake import WATCHDOG_FACT
from pyrometer_alerting.incidents.own_alerts import WATCHDOG_RARE
from pyrometer_alerting.incidents.storage.operation import QUIET, Operation
from pyrometer_alerting.incidents.storage.store import Store, StoreError, Transaction
from pyrometer_alerting.model import text
from pyrometer_alerting.model.incident import Incident, part_of
from pyrometer_alerting.model.text import counted, duration
from pyrometer_kit.clock import Clock

_MOST_REFUSED, _MOST_HELD = 5, 5
_WATCHDOG_SECONDS = 180.0  # it arrives every minute; two may be lost to a restart
_SHOWN_SECONDS = 86_400.0  # as the incident changes, its message is tried again; a day later it is history


class GivenUp(NamedTuple):
    """A message that was refused for good: the incident's id, what it is about, where it should be, and why."""

    incident: str
    about: str
    channel: str
    reason: str


def given_up(tx: Transaction, channel: str, now: float) -> list[GivenUp]:
    """Return what Slack or an outlet refused for good within a day, newest first; `channel` is Slack's default."""
    refused = [operation for operation in tx.outbox.dead() if now - operation.since < _SHOWN_SECONDS]
    return [
        GivenUp(
            operation.incident_id,
            _about(tx.incident(operation.incident_id)),
            f"outlet {operation.outlet}" if operation.outlet else operation.target or channel,
            operation.error or "unknown",
        )
        for operation in reversed(refused)
    ]


def _about(incident: Incident | None) -> str:
    if incident is None:
        return "a digest"
    where = incident.run or incident.domain or part_of(incident.newest().labels) or incident.cluster
    return text.plain(f"{incident.alertname} {where}".strip(), 120)


def held_lines(tx: Transaction, channel: str, now: float, outlets: Iterable[str] = ()) -> list[str]:
    """Return a line for what our own limit or quiet hours hold back, with its age; `channel` is Slack's default."""
    held = [operation for box in (tx.outbox, *map(tx.outbox_of, outlets)) for operation in box.held(now)]
    lines = [_held_line(tx, operation, channel, now) for operation in held[:_MOST_HELD]]
    return [*lines, *([f"Held back: {len(held) - _MOST_HELD} more."] if len(held) > _MOST_HELD else [])]


def _held_line(tx: Transaction, held: Operation, channel: str, now: float) -> str:
    why = "by quiet hours" if held.error == QUIET else "so that people are pinged less often"
    what = "a notice" if held.outlet else "a reply" if held.kind == "reply" else "the message"
    where = f"outlet {held.outlet}" if held.outlet else held.target or channel
    return (
        f"Held back, {why}: {what} on {_about(tx.incident(held.incident_id))} in {where}, since {text.utc(held.since)}"
        f" ({duration(now - held.since)} ago); it goes out in {duration(held.not_before - now)}."
    )


def trouble_lines(
    tx: Transaction, courier: Courier, outlets: OutletCouriers, policy: Iterable[str], now: float
) -> tuple[str, ...]:
    """Return a line for each trouble of the service's own: no Watchdog, messages that wait or were refused."""
    depth, oldest, _dead = tx.outbox.depth()
    heartbeat = tx.fact(WATCHDOG_FACT)
    lines = []
    if tx.facts(f"{WATCHDOG_RARE}:"):
        lines.append(
            "Alertmanager has the Watchdog and sends it too rarely or not at all: see the incident WatchdogRare."
        )
    elif heartbeat is not None and now - float(heartbeat) > _WATCHDOG_SECONDS:
        lines.append(
            f"No Watchdog alert for {duration(now - float(heartbeat))}: Prometheus, Alertmanager or the path "
            "from them is"
            " broken, and no other alert can be trusted to arrive."
        )
    if courier.blocked:
        lines.append(f"Slack refuses everything: {with_remedy(courier.blocked)}. {counted(depth, 'message')} queued.")
    elif oldest is not None and now - oldest > 30:
        why = "; ".join(map(with_remedy, tx.outbox.reasons(now)))
        waits = f"{counted(depth, 'message')} waiting for Slack, the oldest for {now - oldest:.0f} s"
        lines.append(f"{waits} ({why})." if why else f"{waits}.")
    lines += [f"Policy: {line}." for line in policy]
    for channel, why in courier.parked.items():
        lines.append(f"{channel} cannot be reached ({with_remedy(why)}); new messages go to the default channel.")
    lines += held_lines(tx, courier.channel, now, outlets.names)
    refused = given_up(tx, courier.channel, now)
    for one in refused[:_MOST_REFUSED]:
        lines.append(
            f"Given up: {one.about} in {one.channel}, which refused it ({with_remedy(one.reason)});"
            " pyrometer-alerting replay tries again."
        )
    if len(refused) > _MOST_REFUSED:
        lines.append(f"Given up: {len(refused) - _MOST_REFUSED} more, see pyrometer-alerting replay --list.")
    return (*lines, *outlets.trouble(tx, now))


EVERY_SECONDS = 5.0  # each check is a commit on disk, and anyone may request one


class Readiness:
    """Writes to the store periodically and remembers the outcome."""

    def __init__(self, store: Store, deliveries: Deliveries, clock: Clock) -> None:
        self._store, self._deliveries, self._clock = store, deliveries, clock
        self._lock = threading.Lock()
        self._checked_at = float("-inf")
        self._error: StoreError | None = None

    @property
    def writable(self) -> bool:
        """True if the store can be written now."""
        try:
            self.check()
        except StoreError:
            return False
        return True

    def check(self) -> None:
        """Write something, unless that was tried a few seconds ago.

        Raises:
            StoreError: nothing can be written.
        """
        with self._lock:
            now = self._clock.monotonic()
            if now - self._checked_at >= EVERY_SECONDS:
                self._checked_at, self._error = now, self._probe()
            if self._error is not None:
                raise self._error
            if self._deliveries.stuck:  # the disk may have space for a word but not for a delivery
                raise StoreError(self._deliveries.stuck)

    def _probe(self) -> StoreError | None:
        try:
            self._store.probe(self._clock.wall())
        except StoreError as error:
            return error
        return None
