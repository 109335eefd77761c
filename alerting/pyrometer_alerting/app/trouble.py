"""The service's own troubles, for its page."""

from __future__ import annotations

from collections.abc import Iterable

from pyrometer_alerting.channel.courier import Courier
from pyrometer_alerting.channel.outlets.couriers import OutletCouriers
from pyrometer_alerting.incidents.intake import WATCHDOG_FACT
from pyrometer_alerting.incidents.storage.store import Transaction
from pyrometer_alerting.model.text import duration

_WATCHDOG_SECONDS = 180.0  # it arrives every minute; two may be lost to a restart


def trouble_lines(
    tx: Transaction, courier: Courier, outlets: OutletCouriers, policy: Iterable[str], now: float
) -> tuple[str, ...]:
    """Return a line for each trouble of the service's own: no Watchdog, messages that wait or were refused."""
    depth, oldest, dead = tx.outbox.depth()
    heartbeat = tx.fact(WATCHDOG_FACT)
    lines = []
    if heartbeat is not None and now - float(heartbeat) > _WATCHDOG_SECONDS:
        lines.append(
            f"No Watchdog alert for {duration(now - float(heartbeat))}: Prometheus, Alertmanager or the path "
            "from them is"
            " broken, and no other alert can be trusted to arrive."
        )
    if courier.blocked:
        lines.append(f"Slack refuses everything: {courier.blocked}. {depth} messages are queued.")
    elif oldest is not None and now - oldest > 30:
        lines.append(f"{depth} messages are waiting for Slack, the oldest for {now - oldest:.0f} s.")
    lines += [f"Policy: {line}." for line in policy]
    for channel, why in courier.parked.items():
        lines.append(f"{channel} cannot be reached ({why}): new messages go to the default channel.")
    if dead:
        lines.append(f"{dead} messages were refused by Slack for good: pyrometer-alerting replay retries them.")
    return (*lines, *outlets.trouble(tx, now))
