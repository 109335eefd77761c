"""The first reply of a thread: edited in place as its card is, and it calls nobody."""

from __future__ import annotations

from dataclasses import replace

from alerting_fakes import Bench, raw_alert

from pyrometer_alerting.incidents.storage.operation import Operation
from pyrometer_alerting.model.incident import Cause, Diagnosis
from pyrometer_alerting.model.routing import Routing, Rules

DROP = raw_alert("TrainMfuDropped", run="r", component="train")
HOT = Cause("n1 GPU 3", "hardware thermal throttling", ("92 \u00b0C",), labels={"node": "n1", "gpu": "3"})


def diagnose(bench: Bench, *evidence: str) -> None:
    with bench.store.transaction() as tx:
        (incident,) = tx.incidents()
        found = Diagnosis(bench.clock.time, (replace(HOT, evidence=evidence),))
        tx.save_incident(replace(incident, diagnosis=found), bench.clock.time)
        tx.outbox.request(incident.id, bench.clock.time, bench.clock.time)
    bench.deliver()


def evidence(bench: Bench) -> Operation:
    with bench.store.transaction() as tx:
        (incident,) = tx.incidents()
        (found,) = tx.outbox._select("incident_id = ? AND kind = 'reply' AND body IS NULL", incident.id)
        return found


def replies(bench: Bench) -> list[str]:
    return [str(reply["text"]) for reply in bench.slack.messages("gpu-alerts")[0]["replies"]]


def test_it_is_posted_with_the_diagnosis_and_edited_in_place(bench: Bench) -> None:
    bench.courier.composer.routing = Routing(channels={"": Rules(mentions={"critical": ("<!here>",)})})
    bench.receive(DROP)
    bench.deliver()
    assert replies(bench) == []
    diagnose(bench, "92 \u00b0C")
    diagnose(bench, "95 \u00b0C")
    (shown,) = replies(bench)
    assert "\u2022 95 \u00b0C" in shown
    assert "<!here>" not in shown
    assert bench.slack.messages("gpu-alerts")[0]["text"].startswith("<!here>")
    posts = [
        call.args for call in bench.slack.calls if call.method == "chat.postMessage" and call.args.get("thread_ts")
    ]
    assert [bool(args.get("reply_broadcast")) for args in posts] == [False]


def test_the_same_evidence_is_no_call(bench: Bench) -> None:
    bench.receive(DROP)
    diagnose(bench, "92 \u00b0C")
    calls = len(bench.slack.calls)
    diagnose(bench, "92 \u00b0C")
    assert [call.method for call in bench.slack.calls[calls:]] in ([], ["chat.update"])  # the time of the diagnosis


def test_a_lost_answer_leaves_one(bench: Bench) -> None:
    bench.receive(DROP)
    bench.deliver()
    bench.slack.inject("chat.postMessage", "close_after")
    diagnose(bench, "92 \u00b0C")
    assert len(replies(bench)) == 1
    assert evidence(bench).state == "done"


def test_a_thread_that_was_deleted_with_its_message_gets_it_again(bench: Bench) -> None:
    bench.receive(DROP)
    diagnose(bench, "92 \u00b0C")
    bench.slack.channel("gpu-alerts").delete(bench.messages[0]["ts"])
    diagnose(bench, "95 \u00b0C")
    with bench.store.transaction() as tx:
        (incident,) = tx.incidents()
        tx.save_incident(replace(incident, severity="warning"), bench.clock.time)
        tx.outbox.request(incident.id, bench.clock.time, bench.clock.time)
    bench.deliver()
    assert len(replies(bench)) == 1
