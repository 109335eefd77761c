"""Merge incidents that are one, and split off alerts that get a message of their own; both messages report it.

A run's message absorbs its cause, which stays there while the run uses the part, even if the diagnosis now blames
another one: the same people need to know that it is sick, and a message that moves with each diagnosis is noise. It
leaves when the run has no part there any more. An alert that starts again long after its own end is a separate
incident, even if the rest still fires.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from pyrometer_alerting.incidents.correlation import merged_incident
from pyrometer_alerting.incidents.lifecycle import REOPEN_SECONDS, Change, key_of, tells_at_once, worst
from pyrometer_alerting.incidents.storage.store import Transaction
from pyrometer_alerting.model.alert_names import RUN_SYMPTOMS
from pyrometer_alerting.model.culprits import blames
from pyrometer_alerting.model.harm import rank
from pyrometer_alerting.model.incident import Alert, Incident
from pyrometer_alerting.model.message import Replies
from pyrometer_alerting.model.routing import Routing


def separate_keys(incident: Incident, delivered: Mapping[str, Sequence[Alert]]) -> list[str]:
    """Return the delivered keys that start long after all earlier alerts of theirs in the run's incident ended.

    One key always stays.
    """
    if not incident.run or not incident.keys:
        return []
    before: dict[str, list[Alert]] = {}
    for member in incident.members:
        before.setdefault(key_of(member), []).append(member)
    keys = [key for key, alerts in delivered.items() if key in before and _is_separate(before[key], alerts)]
    return keys if len(keys) < 1 + len(incident.keys) else keys[:-1]


def _is_separate(before: Sequence[Alert], alerts: Sequence[Alert]) -> bool:
    begins = min((alert.starts_at for alert in alerts if alert.firing), default=None)
    if begins is None:
        return False
    return all(not one.firing and begins - (one.ends_at or begins) > REOPEN_SECONDS for one in before)


def without_keys(incident: Incident, keys: Collection[str]) -> Incident:
    """Return the incident without the alerts of these keys, which are not all; a resolved one keeps its history."""
    if not incident.firing:
        first, *others = [key for key in (incident.key, *incident.keys) if key not in keys]
        return replace(incident, key=first, keys=tuple(others))
    return _incident_of(incident, [member for member in incident.members if key_of(member) not in keys])


def unrelated_keys(incident: Incident, fingerprints: Collection[str]) -> set[str]:
    """Return the keys whose firing alerts are all among these, unless that is all of them."""
    firing: dict[str, list[bool]] = {}
    for member in incident.members:
        strangers = firing.setdefault(key_of(member), [])
        strangers += [member.fingerprint in fingerprints] if member.firing else []
    keys = {key for key, strangers in firing.items() if strangers and all(strangers)}
    return keys if len(keys) < len(firing) else set()


def split_off(
    tx: Transaction, incident: Incident, keys: Collection[str], replies: Replies, routing: Routing, *, now: float
) -> None:
    """Give the alerts of these keys an incident and a message of their own; the rest keeps its message."""
    rest = without_keys(incident, keys)
    left = [member for member in incident.members if key_of(member) in keys]
    parted = replace(
        _incident_of(incident, left),
        id=uuid.uuid4().hex,
        received_at=now,
        parted_run=incident.run,
        parted_at=now,
        note="",
    )
    for one in (rest, parted):
        tx.save_incident(one, now)
        if one.is_posted:
            tx.outbox.request(one.id, now, now, one.channel)
    for member in left:
        tx.move_alert(member.fingerprint, parted.id)
    for pointer in tx.pointers(incident.id):
        if pointer.key in keys:
            tx.save_incident(replace(pointer, joined_into=parted.id), now)
            tx.outbox.request(pointer.id, now, now)
    if rest.is_posted:
        message = replies.split(routing.redacted(rest), routing.redacted(parted))
        tx.outbox.reply(rest.id, message.stored, now, tx.outbox.free_at(rest.id, now))


def _incident_of(incident: Incident, members: Sequence[Alert]) -> Incident:
    """Build an incident of these members, named after a run's symptom if there is one, else after the worst."""
    firing = [member for member in members if member.firing]
    lead = max(firing or members, key=lambda one: (one.name in RUN_SYMPTOMS, rank(worst([one]))))
    run, (first, *others) = lead.labels.get("run", ""), dict.fromkeys(map(key_of, members))
    ended = None if firing else max(member.ends_at or member.starts_at for member in members)
    return replace(
        incident,
        key=first,
        keys=tuple(others),
        alertname=lead.name,
        run=run,
        component=lead.labels.get("component", ""),
        severity=worst(firing or members),
        started_at=min(member.starts_at for member in firing or members),
        resolved_at=ended,
        members=tuple(members),
        domain="" if run else incident.domain,
        diagnosis=incident.diagnosis if run else None,
        picture=incident.picture if run else "",
    )


def merge_incidents(tx: Transaction, incidents: Sequence[Incident], domain: str, now: float) -> Change:
    """Merge incidents; the caller saves the result. Unposted ones disappear, posted ones become pointers to it.

    The events are those of the surviving message: `worse` pings, `news` (a death, a hang or a loss that the channel has
    not seen) is told at once, `joined` becomes a reply. An alert that nobody was told of, on a part that the message
    blames already, is `grown`: its readers know.
    """
    ordered = sorted(incidents, key=lambda incident: (not tx.outbox.is_posted(incident.id), incident.received_at))
    survivor, *others = ordered
    told = any(tx.outbox.is_posted(other.id) for other in others)
    result = merged_incident(ordered, domain)
    for other in others:
        _absorb(tx, other, result, now)
    if not tx.outbox.is_posted(survivor.id):
        return Change(result, ("opened",))
    seen = [survivor, *(other for other in others if tx.outbox.is_posted(other.id))]
    events = ("news",) if tells_at_once(result.members, [alert for one in seen for alert in one.members]) else ()
    if rank(result.severity) > rank(survivor.severity):
        return Change(result, ("worse", *events))
    names = _firing(result) - _firing(survivor)
    known = survivor.wants_diagnosis and all(blames(survivor, one.labels) for other in others for one in other.members)
    return Change(result, (*events, "joined" if names and (told or not known) else "grown"))


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
