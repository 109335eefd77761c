"""From a webhook body to the store: one transaction per delivery, committed before Alertmanager is answered."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from pyrometer_alerting.clock import Clock
from pyrometer_alerting.incidents import CAUSE_ALERTS, WATCHDOG, Change, fold, is_stale, key_of
from pyrometer_alerting.messages import Style, build_reply
from pyrometer_alerting.metrics import Metrics
from pyrometer_alerting.model import Alert, Incident
from pyrometer_alerting.store import Store, Transaction
from pyrometer_alerting.webhook import Delivery

# Most first diagnoses are there within 100 ms; a message that pings once should name the culprit when it does.
SETTLE_SECONDS = 0.5
WATCHDOG_FACT = "watchdog_last_seen"


@dataclass
class Outcome:
    """What a delivery led to: incidents whose cause must be looked for now, and whether a cause itself arrived."""

    diagnose: list[str] = field(default_factory=list)
    cause_arrived: bool = False


class Intake:
    """Applies deliveries; raises StoreError when they could not be kept."""

    def __init__(self, store: Store, *, style: Style, clock: Clock, metrics: Metrics, diagnoses: bool) -> None:
        self._store, self._style, self._clock, self._metrics = store, style, clock, metrics
        self._diagnoses = diagnoses

    def apply(self, delivery: Delivery) -> Outcome:
        """Keep everything the delivery says, atomically."""
        now = self._clock.now()
        outcome = Outcome()
        counts = {"applied": 0, "stale": 0, "repeated": 0}
        with self._store.transaction() as tx:
            self._note_watchdog(tx, delivery, now)
            if tx.is_repeated(delivery.group, delivery.digest, now):
                counts["repeated"] = len(delivery.alerts)
            else:
                by_key = self._fresh_by_key(tx, delivery, counts, now)
                for key, alerts in by_key.items():
                    change = fold(tx.latest_incident(key), alerts, delivery.truncated, now)
                    self._keep(tx, alerts, change, now, outcome)
        for name, count in counts.items():
            self._metrics.alerts.labels(name).inc(count)
        return outcome

    def _note_watchdog(self, tx: Transaction, delivery: Delivery, now: float) -> None:
        if any(alert.name == WATCHDOG and alert.firing for alert in delivery.alerts):
            tx.save_fact(WATCHDOG_FACT, repr(now))

    def _fresh_by_key(
        self, tx: Transaction, delivery: Delivery, counts: dict[str, int], now: float
    ) -> dict[str, list[Alert]]:
        by_key: dict[str, list[Alert]] = {}
        for alert in delivery.alerts:
            if alert.name == WATCHDOG:
                continue
            known, seen_at = tx.known_alert(alert.fingerprint)
            if is_stale(alert, known, now - seen_at):
                counts["stale"] += 1
                continue
            counts["applied"] += 1
            by_key.setdefault(key_of(alert), []).append(alert)
        return by_key

    def _keep(self, tx: Transaction, alerts: list[Alert], change: Change | None, now: float, outcome: Outcome) -> None:
        for alert in alerts:
            tx.save_alert(alert, change.incident.id if change is not None else None, now)
        if change is None or change.incident == tx.incident(change.incident.id):
            return
        tx.save_incident(change.incident, now)
        self._announce(tx, change, now)
        outcome.cause_arrived |= change.incident.alertname in CAUSE_ALERTS
        if change.incident.firing and change.incident.wants_diagnosis:
            outcome.diagnose.append(change.incident.id)

    def _announce(self, tx: Transaction, change: Change, now: float) -> None:
        incident = change.incident
        if not incident.posts:
            return
        tx.outbox.want(incident.id, now, now + self._settle(incident))
        for event in change.events:
            if event != "opened":
                message = build_reply(incident, event, self._style)
                tx.outbox.reply(incident.id, json.dumps({"text": message.text, "blocks": message.blocks}), now)

    def _settle(self, incident: Incident) -> float:
        """How long the first post may wait for its cause."""
        waits = incident.wants_diagnosis and incident.firing and incident.diagnosis is None and self._diagnoses
        return SETTLE_SECONDS if waits else 0.0
