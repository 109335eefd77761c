"""The gauges that are read from the store at each scrape, which only the leader serves."""

from __future__ import annotations

from pyrometer_alerting.channel.courier import Courier
from pyrometer_alerting.channel.outlets.couriers import OutletCouriers
from pyrometer_alerting.incidents.incident_metrics import incident_gauges
from pyrometer_alerting.incidents.intake import WATCHDOG_FACT
from pyrometer_alerting.incidents.storage.engine import Engine
from pyrometer_alerting.incidents.storage.store import Transaction
from pyrometer_alerting.policy.gauges import policy_gauges
from pyrometer_alerting.policy.worker import PolicyWorker

Gauges = dict[str, dict[tuple[tuple[str, str], ...], float]]


def leader_gauge(engine: Engine) -> dict[tuple[tuple[str, str], ...], float]:
    """Return whether this process leads, and which database the services share that it leads among."""
    storage = engine.name if engine.folder is None else "sqlite"
    return {(("storage", storage),): float(engine.leads())}


def store_gauges(
    tx: Transaction, courier: Courier, outlets: OutletCouriers, policy: PolicyWorker, *, page_url: str, now: float
) -> Gauges:
    """Return incidents, outbox, outlets, policy and heartbeat as gauges."""
    depth, oldest, dead = tx.outbox.depth()
    watchdog = tx.fact(WATCHDOG_FACT)
    gauges: Gauges = (
        incident_gauges(tx.recent_incidents(float("inf")), page_url)
        | outlets.gauges(tx, now)
        | policy_gauges(policy, tx.actions)
        | {
            "pyrometer_alerting_incidents_open": {
                (("severity", name),): count for name, count in tx.firing_count().items()
            },
            "pyrometer_alerting_outbox_depth": {(): depth},
            "pyrometer_alerting_outbox_oldest_age_seconds": {(): max(now - oldest, 0.0) if oldest is not None else 0.0},
            "pyrometer_alerting_outbox_dead": {(): dead},
            "pyrometer_alerting_slack_blocked": {(("reason", courier.blocked),): float(bool(courier.blocked))},
        }
    )
    if parked := courier.parked:
        gauges["pyrometer_alerting_channel_unreachable"] = {
            (("channel", channel), ("reason", why)): 1.0 for channel, why in parked.items()
        }
    if watchdog is not None:
        gauges["pyrometer_alerting_watchdog_last_seen_timestamp_seconds"] = {(): float(watchdog)}
    return gauges
