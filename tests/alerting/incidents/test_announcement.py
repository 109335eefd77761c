"""When a change of an incident is told: at once what matters, the rest within the calls that a message gets."""

from __future__ import annotations

import pytest
from alerting_fakes import START, training_incident

from pyrometer_alerting.channel.messages import Style, ThreadReplies
from pyrometer_alerting.incidents.intake import announce
from pyrometer_alerting.incidents.lifecycle import Change
from pyrometer_alerting.incidents.storage.outbox import CALLS_SECONDS
from pyrometer_alerting.incidents.storage.store import Store
from pyrometer_alerting.model import routing


@pytest.mark.parametrize(
    ("severity", "event", "told"),
    [
        ("warning", "reopened", START + CALLS_SECONDS),  # the edit is the fourth call; two are left for "worse"
        ("critical", "reopened", START + 60),
        ("critical", "worse", START + 60),
        ("critical", "resolved", START + 60),
    ],
)
def test_a_reply_on_a_warning_leaves_two_calls_for_becoming_critical(
    store: Store, severity: str, event: str, told: float
) -> None:
    incident, now = training_incident(severity=severity, run=""), START + 60
    with store.transaction() as tx:
        tx.outbox.request(incident.id, START, START)
        root = tx.outbox.root(incident.id)
        assert root is not None
        tx.outbox.start(root.op_id, START, "C1")
        tx.outbox.finish(root, "C1", "1.0", "", START)
        for at in (START, START + 30, START + 30):
            tx.outbox.note_call(incident.id, at)
        routes = routing.load(None, "#gpu")
        announce(tx, Change(incident, (event,)), ThreadReplies(Style()), routes, now=now, not_before=now)
        (when,) = tx._db.execute("SELECT not_before FROM outbox WHERE kind = 'reply'").fetchone()
    assert when == told
