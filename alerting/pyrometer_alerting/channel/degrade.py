"""Degrade a message step by step until Slack accepts it, and remember whether the workspace has chart blocks."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable

from pyrometer_alerting.channel.messages import CHARTS, DEGRADE_LEVELS, NATIVE_CHART, WITHOUT_CHART
from pyrometer_alerting.incidents.storage.store import Store, Transaction
from pyrometer_alerting.model.message import Message

_log = logging.getLogger(__name__)

CHARTS_FACT = "charts_refused_at"
CHARTS_RETRY_SECONDS = 7 * 86_400.0  # Slack enables features workspace by workspace


def has_native_charts(tx: Transaction, now: float) -> bool:
    """Return whether Slack's chart block may be used: it was not refused within a week."""
    refused = tx.fact(CHARTS_FACT)
    return refused is None or now - float(refused) > CHARTS_RETRY_SECONDS


def has_native_charts_enabled(tx: Transaction, charts: str, now: float) -> bool:
    """Return whether Slack draws the charts, by the setting and by the workspace's refusals."""
    return charts == "auto" and has_native_charts(tx, now)


def record_chart_refusal(store: Store, op_id: str, now: float) -> None:
    """Record that Slack rejected the chart but accepted the message without it; pictures are used from now on."""
    _log.info("outbox: this workspace has no chart blocks: sending charts as pictures")
    with store.transaction() as tx:
        tx.save_fact(CHARTS_FACT, repr(now))
        tx.outbox.restore(op_id)


def degraded(level: int, build: Callable[[int], Message]) -> tuple[int, Message]:
    """Return the message at this level, or at the next one that differs: never the refused content."""
    message = build(level)
    while 0 < level < DEGRADE_LEVELS - 1 and message == build(level - 1):
        level += 1
        message = build(level)
    return level, message


def stored_message(body: str, *, native: bool) -> Callable[[int], Message]:
    """Return a stored message by level: whole (without unsupported charts), without charts, as plain text."""
    stored = json.loads(body)
    text, blocks = str(stored.get("text", "")), list(stored.get("blocks", []))
    left_out = [(), CHARTS] if native else [(NATIVE_CHART,), CHARTS]

    def at(level: int) -> Message:
        return Message(text, [b for b in blocks if b["type"] not in left_out[level]] if level <= WITHOUT_CHART else [])

    return at
