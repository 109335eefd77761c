"""Was this right? From two buttons to the audit trail, the thread and the digest."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
from alerting_fakes import raw_alert, wait_until
from alerting_talking import ALICE, BOB, Talking

from pyrometer_alerting.channel.digest.data import DigestReport
from pyrometer_alerting.channel.digest.digest_message import facts
from pyrometer_alerting.channel.judgement import JUDGED_CAUSE, JUDGED_RIGHT, JUDGED_WRONG, tally
from pyrometer_alerting.model.incident import Cause, Diagnosis

HOT = Cause("gpu-042 GPU 3", "hardware thermal throttling", score=100.0, labels={"node": "gpu-042", "gpu": "3"})
CHECKPOINT = Cause("no single part", "saving a checkpoint", score=60.0)
DROP = raw_alert("TrainMfuDropped", run="llama-70b", component="train", starts_at=time.time() - 30)


def diagnosed(talking: Talking, *causes: Cause) -> None:
    """Post an incident of a run and give it this diagnosis."""
    talking.receive(DROP)
    now = time.time()
    with talking.service._store.transaction() as tx:
        (incident,) = tx.incidents()
        tx.save_incident(replace(incident, diagnosis=Diagnosis(now, causes)), now)
        tx.outbox.request(incident.id, now, now)
    talking.service.courier.wake()
    if causes and causes[0].cause:
        wait_until(lambda: "pyrometer_judge_right" in replies(talking))


def judged(talking: Talking) -> list[tuple[str, str, str]]:
    with talking.service._store.transaction() as tx:
        return [(user, action, detail) for _at, user, action, _incident, detail in reversed(tx.audits())]


def replies(talking: Talking) -> str:
    return str(talking.message["replies"])


def test_a_right_culprit_is_recorded_once_and_said_in_the_thread(talking: Talking) -> None:
    diagnosed(talking, HOT)
    assert talking.press("judge_right").seconds < 3.0
    wait_until(lambda: "right, gpu-042 GPU 3: hardware thermal throttling" in replies(talking))
    talking.press("judge_right")
    wait_until(talking.whispers)
    assert talking.whispers() == ["You have already said so."]
    assert judged(talking) == [(f"u0alice ({ALICE})", JUDGED_RIGHT, "gpu-042 GPU 3: hardware thermal throttling")]
    assert b'pyrometer_alerting_judgements_total{judgement="right"} 1.0' in talking.service.metrics.render()


def test_a_wrong_culprit_is_recorded_before_the_question_what_it_was(talking: Talking) -> None:
    diagnosed(talking, CHECKPOINT)
    talking.press("judge_wrong")
    wait_until(lambda: talking.slack.app.views)
    assert judged(talking)[0][1:] == (JUDGED_WRONG, "no single part: saving a checkpoint")
    (view,) = talking.slack.app.views
    assert "saving a checkpoint" in str(view["blocks"])
    talking.slack.app.submit(view, ALICE, {"answer": {"answer": {"value": "disk of <!here> n7"}}})
    wait_until(lambda: "on the cause: disk of &lt;!here&gt; n7" in replies(talking))
    assert judged(talking)[1][1:] == (JUDGED_CAUSE, "disk of <!here> n7")


def test_an_empty_answer_adds_nothing(talking: Talking) -> None:
    diagnosed(talking, HOT)
    talking.press("judge_wrong")
    wait_until(lambda: talking.slack.app.views)
    talking.slack.app.submit(talking.slack.app.views[0], ALICE)
    talking.press("judge_right")  # the next click is handled after it
    wait_until(lambda: len(judged(talking)) == 2)
    assert [action for _user, action, _detail in judged(talking)] == [JUDGED_WRONG, JUDGED_RIGHT]


def test_who_is_not_on_the_list_judges_nothing(talking: Talking) -> None:
    diagnosed(talking, HOT)
    talking.press("judge_wrong", BOB)
    wait_until(talking.whispers)
    assert "not on the list" in talking.whispers()[0]
    assert [action for _user, action, _detail in judged(talking)] == ["refused"]
    assert talking.slack.app.views == []


@pytest.mark.parametrize("causes", [(), (Cause("unknown", "", ("nothing convincing",)),)])
def test_nobody_is_asked_about_an_unknown_cause(talking: Talking, causes: tuple[Cause, ...]) -> None:
    diagnosed(talking, *causes)
    talking.press("acknowledge")
    wait_until(lambda: "is on it" in str(talking.message["blocks"]))
    assert "pyrometer_judge" not in str(talking.message)


def test_a_resolved_message_can_still_be_judged(talking: Talking) -> None:
    diagnosed(talking, HOT)
    resolved: dict[str, Any] = {**DROP, "status": "resolved", "endsAt": DROP["startsAt"]}
    talking.receive(resolved, status="resolved")
    wait_until(lambda: "Resolved:" in str(talking.message["blocks"]))
    assert "pyrometer_acknowledge" not in str(talking.message["blocks"])
    talking.press("judge_right")
    wait_until(lambda: judged(talking))


def test_the_digest_counts_the_last_word_of_each_person(talking: Talking) -> None:
    with talking.service._store.transaction() as tx:
        for at, who, action in [(1.0, "a", JUDGED_WRONG), (2.0, "a", JUDGED_RIGHT), (3.0, "b", JUDGED_WRONG)]:
            tx.audit(at, who, action, "i1", "x")
        tx.audit(4.0, "a", JUDGED_RIGHT, "i2", "x")
        assert tally(tx, 0.0, 10.0) == (2, 1)
        assert tally(tx, 0.0, 4.0) == (1, 1)
        assert tally(tx, 5.0, 10.0) == (0, 0)
    assert talking.service.analysis.digest_scheduler.report("daily", 10.0).judged_right == 2


def test_the_digest_says_how_many_diagnoses_were_right() -> None:
    report = DigestReport("weekly", 0.0, 10.0, judged_right=9, judged_wrong=1)
    assert ("Diagnoses judged", "9 of 10 right") in facts(report)
    assert "Diagnoses judged" not in str(facts(DigestReport("weekly", 0.0, 10.0)))
