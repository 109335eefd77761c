"""When a change of an incident is told: at once what matters; replies of no urgency within the limit of pings."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from alerting_fakes import START, alert, training_incident

from pyrometer_alerting.channel.blocks import Style
from pyrometer_alerting.channel.messages import ThreadReplies
from pyrometer_alerting.incidents.intake import announce
from pyrometer_alerting.incidents.lifecycle import Change, fold
from pyrometer_alerting.incidents.storage.outbox import CALLS_SECONDS
from pyrometer_alerting.incidents.storage.store import Store
from pyrometer_alerting.model import routing


@pytest.mark.parametrize(
    ("event", "pings", "edited", "replied"),
    [
        ("resolved", 3, START + 60, START + CALLS_SECONDS),
        ("reopened", 3, START + 60, START + CALLS_SECONDS),
        ("joined", 3, START + 60, START + CALLS_SECONDS),
        ("joined", 2, START + 60, START + 60),
        ("worse", 9, START + 60, START + 60),
        ("news", 9, START + 60, START + 60),
    ],
)
def test_no_edit_waits_and_no_reply_that_the_channel_must_see(
    store: Store, event: str, pings: int, edited: float, replied: float
) -> None:
    incident, now = training_incident(severity="warning", run=""), START + 60
    with store.transaction() as tx:
        tx.outbox.request(incident.id, START, START)
        root = tx.outbox.root(incident.id)
        assert root is not None
        tx.outbox.start(root.op_id, START, "C1")
        tx.outbox.finish(root, "C1", "1.0", "", START)
        for at in range(pings):
            tx.outbox.note_call(incident.id, START + at)
        routes = routing.load(None, "#gpu")
        announce(tx, Change(incident, (event,)), ThreadReplies(Style()), routes, now=now, not_before=now)
        when = dict(tx._db.execute("SELECT kind, not_before FROM outbox").fetchall())
    assert when == {"root": edited, "reply": replied}


def test_a_death_joins_its_hang_as_a_reply_that_the_channel_sees_and_that_pings_nobody(store: Store) -> None:
    stalled = alert("TrainStalled", labels={"run": "llm", "node": "gpu-002", "rank": "1", "severity": "critical"})
    died = replace(
        alert(
            "TrainRunDied",
            fingerprint="f2",
            labels={"run": "llm", "node": "gpu-002", "rank": "1", "severity": "warning"},
        ),
        annotations={"summary": "Run llm died: rank 1 on gpu-002 first", "description": "No rank is alive."},
    )
    opened = fold(None, [stalled], 0, START)
    assert opened is not None
    joined = fold(opened.incident, [died], 0, START + 60)
    assert joined is not None
    assert (joined.events, joined.incident.severity) == (("grown", "news"), "critical")
    assert joined.incident.id == opened.incident.id
    again = fold(joined.incident, [died, stalled], 0, START + 75)
    assert again is not None
    assert again.events == ()
    with store.transaction() as tx:
        routes = routing.load(None, "#gpu")
        tx.outbox.request(opened.incident.id, START, START)
        root = tx.outbox.root(opened.incident.id)
        assert root is not None
        tx.outbox.start(root.op_id, START, "C1")
        tx.outbox.finish(root, "C1", "1.0", "", START)
        announce(tx, joined, ThreadReplies(Style()), routes, now=START + 60, not_before=START + 60)
        (body,) = tx._db.execute("SELECT body FROM outbox WHERE kind = 'reply'").fetchone()
    reply = json.loads(body)
    assert (reply["broadcast"], "<!" in reply["text"]) == (True, False)
    assert reply["text"].endswith("Run llm died: rank 1 on gpu-002 first\nNo rank is alive.")
