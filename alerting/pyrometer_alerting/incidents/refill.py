"""After the database was lost or damaged: the remaining work, and the report to the channel."""

from __future__ import annotations

import json

from pyrometer_alerting.incidents.missed import SWEPT_FACT
from pyrometer_alerting.incidents.own_alerts import state_lost
from pyrometer_alerting.incidents.storage.store import LOST_FACT, REFILL_FACT, Transaction
from pyrometer_alerting.model.incident import Alert

WAITING_FACT = "lost_rounds"
ROUNDS = 3  # of reconciliation that wait for Alertmanager, before the report is posted without it


def is_refill_due(tx: Transaction) -> bool:
    """Return whether Alertmanager still has to be queried for all firing alerts."""
    return tx.fact(REFILL_FACT) is not None


def refilled(tx: Transaction) -> None:
    """Record that all firing alerts were read; a repeated delivery counts as new."""
    tx.forget_deliveries()
    tx.forget_fact(REFILL_FACT)


def due_loss(tx: Transaction, taken: int, now: float) -> Alert | None:
    """Return the alert that reports the loss, once: after the refill, or when Alertmanager was silent for a while."""
    told = tx.fact(LOST_FACT)
    if told is None:
        return None
    rounds = int(tx.fact(WAITING_FACT) or 0) + 1
    silent = is_refill_due(tx)
    if silent and rounds < ROUNDS:
        tx.save_fact(WAITING_FACT, str(rounds))
        return None
    loss = json.loads(told)
    since = float(loss["since"])
    # From there on, Prometheus' record is compared with the store.
    tx.save_fact(SWEPT_FACT, repr(min(since, float(tx.fact(SWEPT_FACT) or since))))
    tx.forget_fact(LOST_FACT)
    tx.forget_fact(WAITING_FACT)
    return state_lost(loss["why"], loss["kept"], since, None if silent else taken, now)
