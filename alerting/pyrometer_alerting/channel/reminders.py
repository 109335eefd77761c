"""Remind once, or escalate, when nobody has acknowledged an urgent incident in time; stop when somebody does.

The time counts from the moment at which the channel has the message. It is kept in the store, so a restart forgets
nothing and reminds nobody twice.
"""

from __future__ import annotations

from dataclasses import replace

from pyrometer_alerting.channel.blocks import mrkdwn
from pyrometer_alerting.channel.card import headline
from pyrometer_alerting.incidents.storage.store import Transaction
from pyrometer_alerting.model import text
from pyrometer_alerting.model.harm import urgency
from pyrometer_alerting.model.incident import Incident
from pyrometer_alerting.model.message import Message
from pyrometer_alerting.model.routing import Reminder, Routing

_FACT = "reminder:"
_SENT = "sent"


def plan(tx: Transaction, incident: Incident, reminder: Reminder, now: float) -> None:
    """Note when to remind of an incident whose message has just been delivered, if it is urgent and has no time yet."""
    name = _FACT + incident.id
    if reminder.after <= 0 or not incident.firing:
        tx.forget_fact(name)
    elif urgency(incident) == "critical" and tx.fact(name) is None:
        tx.save_fact(name, repr(now + reminder.after))


def send_due(tx: Transaction, routing: Routing, now: float) -> None:
    """Add the reminders that are due to their threads, shown in the channel too, with their mentions."""
    for incident_id, due in tx.facts(_FACT).items():
        if due == _SENT or float(due) > now:
            continue
        incident = tx.incident(incident_id)
        if incident is None:
            tx.forget_fact(_FACT + incident_id)
            continue
        tx.save_fact(_FACT + incident_id, _SENT)
        if incident.firing and not incident.acknowledged and urgency(incident) == "critical":
            message = _reminder(routing.redacted(incident), routing.reminder)
            message = routing.with_mentions(message, incident, routing.reminder.mentions)
            tx.outbox.reply(incident.id, replace(message, broadcast=True).stored, now)


def _reminder(incident: Incident, reminder: Reminder) -> Message:
    told = text.escape(headline(incident))
    content = f"{told}\nNobody has acknowledged this for {text.duration(reminder.after)}."
    return Message(content, [{"type": "section", "text": mrkdwn(content)}])
