"""Whom an incident concerns, and a reminder when nobody takes it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from alerting_fakes import START, Bench, raw_alert, training_incident

from pyrometer_alerting.model.incident import Diagnosis, Incident
from pyrometer_alerting.model.message import Message
from pyrometer_alerting.model.routing import Routing, load
from pyrometer_kit.errors import UsageError

FILE = """
routing:
  channels:
    "#gpu-alerts": {mentions: {critical: [here]}}
  owners:
    label: team
    ids: {vision: S0VISION1, ada: U0ADA1234}
  reminder: {after: 15m, mentions: [S0LEADS12]}
"""
LOST = raw_alert("GpuLost", node="gpu-042", gpu="3")


def routing(tmp_path: Path, text: str = FILE) -> Routing:
    file = tmp_path / "c.yaml"
    file.write_text(text, encoding="utf-8")
    return load(file, "#gpu-alerts")


def call(routing: Routing, incident: Incident) -> str:
    return routing.with_mentions(Message("x"), incident).text


def test_the_owners_are_mentioned_by_label_and_by_the_runs_user(tmp_path: Path) -> None:
    rules, incident = routing(tmp_path), training_incident()
    member = incident.members[0]
    of_team = replace(incident, members=(replace(member, labels={**member.labels, "team": "vision"}),))
    assert call(rules, of_team) == "<!here> <!subteam^S0VISION1> x"
    assert call(rules, replace(incident, diagnosis=Diagnosis(START, user="ada"))) == "<!here> <@U0ADA1234> x"
    assert call(rules, replace(incident, diagnosis=Diagnosis(START, user="bob"))) == "<!here> x"
    assert call(rules, replace(of_team, severity="warning")) == "x"


@pytest.mark.parametrize(
    "wrong",
    ["owners: {label: team}", "owners: {ids: {a: b}}", "reminder: {mentions: [here]}", "reminder: {after: soon}"],
)
def test_a_mistake_is_named_with_its_line(tmp_path: Path, wrong: str) -> None:
    with pytest.raises(UsageError, match=r"c\.yaml:3"):
        routing(tmp_path, f"\nrouting:\n  {wrong}\n")


def reminders(bench: Bench) -> list[str]:
    (message,) = bench.messages
    return [reply["text"] for reply in message["replies"] if "Nobody has acknowledged" in reply["text"]]


def test_nobody_who_acknowledges_is_told_once(bench: Bench, tmp_path: Path) -> None:
    bench.courier.composer.routing = routing(tmp_path)
    bench.receive(LOST)
    bench.deliver()
    bench.clock.advance(890)
    bench.deliver(5)
    assert reminders(bench) == []
    bench.clock.advance(20)
    bench.deliver()
    (told,) = reminders(bench)
    assert told.startswith("<!subteam^S0LEADS12> \U0001f534 GpuLost")
    assert told.endswith("Nobody has acknowledged this for 15 min.")
    (reply,) = [call for call in bench.slack.calls if call.args.get("reply_broadcast")]
    assert "Nobody has acknowledged" in reply.args["text"]
    bench.restart()
    bench.courier.composer.routing = routing(tmp_path)
    bench.clock.advance(7200)
    bench.deliver()
    assert len(reminders(bench)) == 1


@pytest.mark.parametrize("by", ["a click", "the end", "no harm"])
def test_what_is_taken_or_over_reminds_nobody(bench: Bench, tmp_path: Path, by: str) -> None:
    bench.courier.composer.routing = routing(tmp_path)
    bench.receive(LOST)
    bench.deliver()
    with bench.store.transaction() as tx:
        (incident,) = tx.incidents()
        changed = {"a click": {"acknowledged": "ada"}, "no harm": {"use": "no run is on it"}, "the end": {}}[by]
        tx.save_incident(replace(incident, **changed), bench.clock.time)
    if by == "the end":
        bench.receive({**LOST, "status": "resolved", "endsAt": LOST["startsAt"]})
    bench.clock.advance(1000)
    bench.deliver()
    assert reminders(bench) == []
