"""Merge incidents in the store: the oldest message stays and grows, the others point to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyrometer_alerting.incidents.correlation import merged_incident
from pyrometer_alerting.incidents.lifecycle import Change, rank
from pyrometer_alerting.incidents.storage.store import Transaction
from pyrometer_alerting.model.culprits import culprits
from pyrometer_alerting.model.incident import Incident, part_of


def merge_incidents(tx: Transaction, incidents: Sequence[Incident], domain: str, now: float) -> Change:
    """Merge incidents; the caller saves the result. Unposted ones disappear, posted ones become pointers to it.

    The events are those of the surviving message: `worse` pings, `joined` becomes a reply. An alert that nobody was
    told of, on a part that the message blames already, is `grown`: its readers know.
    """
    ordered = sorted(incidents, key=lambda incident: (not tx.outbox.is_posted(incident.id), incident.received_at))
    survivor, *others = ordered
    told = any(tx.outbox.is_posted(other.id) for other in others)
    result = merged_incident(ordered, domain)
    for other in others:
        _absorb(tx, other, result, now)
    if not tx.outbox.is_posted(survivor.id):
        return Change(result, ("opened",))
    if rank(result.severity) > rank(survivor.severity):
        return Change(result, ("worse",))
    news = _firing(result) - _firing(survivor)
    known = set(culprits(survivor)) if survivor.wants_diagnosis else set()
    known_parts = all(part_of(alert.labels) in known for other in others for alert in other.members)
    return Change(result, ("joined",) if news and (told or not known_parts) else ("grown",))


def _firing(incident: Incident) -> set[str]:
    return {alert.name for alert in incident.members if alert.firing}


def _absorb(tx: Transaction, other: Incident, into: Incident, now: float) -> None:
    tx.move_alerts(other.id, into.id)
    is_posted = tx.outbox.is_posted(other.id)
    if not (is_posted or tx.outbox.is_reported(other.id)):
        tx.drop_incident(other.id)
        return
    tx.save_incident(replace(other, joined_into=into.id, resolved_at=other.resolved_at or now, diagnosis=None), now)
    if is_posted:
        tx.outbox.drop_replies(other.id)
        tx.outbox.request(other.id, now, now)
    else:  # Slack was away, and a pager was not
        tx.outbox.discard(other.id)
        tx.outbox.request_others(other.id, now, now)
