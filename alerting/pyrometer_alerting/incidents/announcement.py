"""Decide when a change of an incident is posted: important ones at once, the rest within its limit of calls."""

from __future__ import annotations

import json
from dataclasses import replace

from pyrometer_alerting.incidents.lifecycle import Change
from pyrometer_alerting.incidents.storage.outbox import KEPT_CALLS
from pyrometer_alerting.incidents.storage.store import Transaction
from pyrometer_alerting.model.alert_names import RUN_SYMPTOMS
from pyrometer_alerting.model.incident import Incident
from pyrometer_alerting.model.message import Replies
from pyrometer_alerting.model.routing import Routing

_REPLY_EVENTS = frozenset(
    {"reopened", "resumed", "again", "worse", "joined", "resolved"}
)  # events that get a reply; all others only edit
_BACK = frozenset({"reopened", "resumed"})
_AT_ONCE = _BACK | {"worse", "worse_again"}  # the message would show that it is over, or less severe than it is
# Seconds between the last call on a message and a non-urgent edit: alerts come and go while a fault lasts,
# and more than six calls in ten minutes are noise. Alerts that join a young incident edit its message sooner: after 5,
# 15, 45 s and so on; the cause of a run's incident is edited in at once, by the diagnosis.
MEMBERS_SECONDS, LEAST_GROWN_SECONDS = 300.0, 5.0
RETURN_CALLS = 1  # reserved when an end is posted: its return must be posted at once
# The cause of a slow run fires before the run's own alert does: when both are back they are posted together.
RUN_FOLLOWS_SECONDS = 30.0


def announce(
    tx: Transaction, change: Change, replies: Replies, routing: Routing, *, now: float, not_before: float
) -> None:
    """Have the message posted or edited, and add a reply for events that deserve one."""
    incident, events = change.incident, set(change.events)
    if not incident.is_posted:
        return
    if "opened" in events or not tx.outbox.is_posted(incident.id):
        tx.outbox.request(incident.id, now, not_before, incident.channel)
    elif _BACK & events and tx.outbox.is_held(incident.id, now):
        tx.outbox.drop_replies(incident.id)  # its end was not posted: there is nothing to take back
        return
    elif "resolved" in events:
        tx.outbox.request(incident.id, now, tx.outbox.free_at(incident.id, now, 1 + RETURN_CALLS), incident.channel)
    elif _AT_ONCE & events:
        tx.outbox.request(incident.id, now, max(not_before, _with_its_run(change, now)), incident.channel)
    elif _REPLY_EVENTS & events:
        tx.outbox.request(incident.id, now, max(not_before, tx.outbox.free_at(incident.id, now, 1)), incident.channel)
    else:
        spreads = "grown" in events and not incident.wants_diagnosis
        age = 2 * max(now - incident.received_at, 0.0)
        spacing = min(max(age, LEAST_GROWN_SECONDS), MEMBERS_SECONDS) if spreads else MEMBERS_SECONDS
        tx.outbox.refresh(incident.id, now, spacing, incident.channel)
    _reply(tx, change, replies, routing, now)


def _reply(tx: Transaction, change: Change, replies: Replies, routing: Routing, now: float) -> None:
    """Add the reply for the last event that deserves one; only a reply, not an edit, pings people when it worsened."""
    incident = change.incident
    told = [event for event in change.events if event in _REPLY_EVENTS]
    if not told:
        return
    message = replies.event(routing.redacted(incident), told[-1])
    if "worse" in told:
        message = replace(routing.with_mentions(message, incident), broadcast=True)
        at = now
    else:
        at = tx.outbox.free_at(incident.id, now, 2 + _kept_calls(incident, told[-1]))
    tx.outbox.reply(incident.id, json.dumps(vars(message)), now, max(at, _with_its_run(change, now)))


def _kept_calls(incident: Incident, event: str) -> int:
    """Return how many calls a reply leaves for urgent posts: a return, or a rise to critical."""
    if event == "resolved":
        return RETURN_CALLS
    return 0 if incident.severity == "critical" else KEPT_CALLS


def _with_its_run(change: Change, now: float) -> float:
    """Return when to report it: later where a run's incident is back and its run is not yet slow again."""
    incident: Incident = change.incident
    slow = any(alert.firing and alert.name in RUN_SYMPTOMS for alert in incident.members)
    return now + RUN_FOLLOWS_SECONDS if "reopened" in change.events and incident.run and not slow else now
