"""People's judgement of a diagnosis: right, or wrong and what it was. It is kept in the audit trail."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from pyrometer_alerting.channel import payloads
from pyrometer_alerting.incidents.storage.store import Transaction
from pyrometer_alerting.model import text
from pyrometer_alerting.model.incident import Incident

JUDGED_RIGHT, JUDGED_WRONG, JUDGED_CAUSE = "judged_right", "judged_wrong", "judged_cause"
CALLBACK = "pyrometer_judgement"
NOTHING_NAMED = "This incident names no cause that could be judged."
_ANSWER = "answer"
_MOST_ANSWER = 300  # characters of a person's own words: one line of a thread


def first_cause(incident: Incident) -> str:
    """Return the likeliest cause as `gpu-042 GPU 3: hardware thermal throttling`; empty without one."""
    if incident.diagnosis is None or not incident.diagnosis.names_cause:
        return ""
    cause = incident.diagnosis.causes[0]
    return f"{cause.part}: {cause.cause}" if cause.cause else cause.part


def record(tx: Transaction, incident: Incident, *, is_right: bool, person: str, now: float) -> bool:
    """Record one person's judgement of the first cause; return False if the same person has said the same of it."""
    action, detail = JUDGED_RIGHT if is_right else JUDGED_WRONG, first_cause(incident)
    mine = [row for row in tx.audits_of(incident.id, (JUDGED_RIGHT, JUDGED_WRONG)) if row[1] == person]
    if mine and (mine[0][2], mine[0][4]) == (action, detail):
        return False
    tx.audit(now, person, action, incident.id, detail)
    return True


def tally(tx: Transaction, start: float, end: float, clusters: Collection[str] = ()) -> tuple[int, int]:
    """Return how many judgements of that time were right and wrong: the last one of each person on each incident.

    Args:
        tx: the transaction to read in.
        start: the first moment of the time, in Unix seconds.
        end: its last moment, in Unix seconds.
        clusters: those whose incidents count; none is all.
    """
    last: dict[tuple[str, str], str] = {}
    for _at, person, action, incident_id, _detail in tx.audits_between(start, end, (JUDGED_RIGHT, JUDGED_WRONG)):
        last.setdefault((incident_id, person), action)
    given = [action for (incident_id, _), action in last.items() if not clusters or _is_of(tx, incident_id, clusters)]
    return given.count(JUDGED_RIGHT), given.count(JUDGED_WRONG)


def _is_of(tx: Transaction, incident_id: str, clusters: Collection[str]) -> bool:
    incident = tx.incident(incident_id)
    return incident is not None and incident.cluster in clusters


def reply(incident: Incident, *, is_right: bool, person: str) -> str:
    """Return the line of the thread, in mrkdwn."""
    cause, who = text.mrkdwn(first_cause(incident), 200), text.mrkdwn(person, 120)
    return f"\U0001f44d {who}: right, {cause}" if is_right else f"\U0001f44e {who}: wrong, it was not {cause}"


def question(incident: Incident, channel: str) -> dict[str, Any]:
    """Build the modal that asks what the cause was."""
    judged = f"Recorded as wrong: {first_cause(incident)}."
    return {
        "type": "modal",
        "callback_id": CALLBACK,
        "title": {"type": "plain_text", "text": "What was the cause?"},
        "submit": {"type": "plain_text", "text": "Send"},
        "close": {"type": "plain_text", "text": "Not known"},
        "private_metadata": json.dumps({"incident": incident.id, "channel": channel}),
        "blocks": [
            {"type": "section", "text": {"type": "plain_text", "text": text.plain(judged, 2900)}},
            {
                "type": "input",
                "block_id": _ANSWER,
                "optional": True,
                "label": {"type": "plain_text", "text": "The part, and what was wrong with it, if known"},
                "element": {"type": "plain_text_input", "action_id": _ANSWER, "max_length": _MOST_ANSWER},
            },
        ],
    }


def answered(view: Mapping[str, Any]) -> str:
    """Return what a person wrote into the modal, in one line; empty if nothing."""
    return text.plain(payloads.written(view, _ANSWER), _MOST_ANSWER)
