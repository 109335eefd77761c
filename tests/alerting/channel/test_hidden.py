"""A channel that hides labels hides them wherever it is pressed: in replies, dialogs, answers and digests."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from alerting_fakes import START, raw_alert, wait_until
from alerting_policy_fakes import CLUSTER, FileScheduler, Findings, policy
from alerting_talking import ALICE, Talking

from pyrometer_alerting.channel.digest.data import DigestReport, Offender, RunTime
from pyrometer_alerting.channel.digest.scheduler import DigestScheduler
from pyrometer_alerting.model.incident import Cause, Diagnosis
from pyrometer_alerting.model.routing import Routing, Rules

SECRET = ("gpu-042", "llama-70b", "mlx5_7")
HOT = Cause("gpu-042 GPU 3", "hot beside mlx5_7", labels={"node": "gpu-042", "gpu": "3", "device": "mlx5_7"})
ROUTING = Routing("#gpu-alerts", channels={"#gpu-alerts": Rules(labels=frozenset({"cluster"}))})


def shown(talking: Talking) -> str:
    """Return all that Slack was ever given."""
    calls = [call.args for call in talking.slack.calls]
    return json.dumps(
        [calls, talking.slack.app.views, talking.whispers(), talking.slack.messages("gpu-alerts")], default=str
    )


def test_no_button_shows_what_the_channel_hides(talking: Talking) -> None:
    talking.service._reload = lambda: (ROUTING, frozenset({ALICE}))
    talking.service.reload()
    labels = {"run": "llama-70b", "node": "gpu-042", "device": "mlx5_7", "component": "train"}
    drop = raw_alert("TrainStraggler", annotations={"summary": "gpu-042 of llama-70b"}, starts_at=time.time() - 30)
    talking.receive({**drop, "labels": drop["labels"] | labels})
    with talking.service._store.transaction() as tx:
        (incident,) = tx.incidents()
        tx.save_incident(replace(incident, diagnosis=Diagnosis(time.time(), (HOT,))), time.time())
        tx.outbox.request(incident.id, time.time(), time.time())
    talking.service.courier.wake()
    wait_until(lambda: "pyrometer_judge_right" in str(talking.message["replies"]))
    for number, button in enumerate(("silence_1h", "judge_wrong"), start=1):
        talking.press(button)
        wait_until(lambda number=number: len(talking.slack.app.views) == number)
    talking.press("judge_right")
    wait_until(lambda: "right, [hidden] GPU 3" in str(talking.message["replies"]))
    for number, button in enumerate(("node", "drain"), start=1):
        talking.press(button)
        wait_until(lambda number=number: len(talking.whispers()) == number)
    talking.slack.app.submit(talking.slack.app.views[0], ALICE)
    wait_until(lambda: talking.alertmanager.made)
    assert 'node="gpu-042"' in ", ".join(map(str, talking.alertmanager.made[0][0])), "it is silenced by its real name"
    wait_until(lambda: len(talking.whispers()) == 3)
    assert 'node="[hidden]"' in shown(talking).replace('\\"', '"').replace("\\", "")
    assert [name for name in SECRET if name in shown(talking)] == []


def test_a_question_of_the_policy_names_no_node_in_its_dialog_or_its_answer(talking: Talking, tmp_path: Path) -> None:
    talking.service._reload = lambda: (ROUTING, frozenset({ALICE}))
    talking.service.reload()
    worker = talking.service.policy
    worker._prometheus = Findings(["n3"])
    scheduler = FileScheduler(tmp_path / "truth", count=20)
    worker.executor.policy, worker.executor.schedulers = policy(do="ask"), {CLUSTER: scheduler}
    worker.step()
    wait_until(lambda: talking.slack.messages("gpu-alerts"))
    assert "Drain: the node?" in str(talking.message["blocks"])
    scheduler.by_hand("n3", held=True, why="disk of n3")
    talking.press("policy_drain", ALICE)
    wait_until(talking.whispers)
    assert talking.whispers() == ["Nothing was done: it no longer applies, or nobody answers."]
    assert "n3" not in shown(talking)


def test_a_digest_names_no_run_and_no_part_where_they_are_hidden(
    talking: Talking, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = talking.service.analysis.digest_scheduler
    report = DigestReport(
        "daily", START - 86_400, START,
        runs=(RunTime("c1", "llama-70b", {"useful": 90.0, "down": 10.0}),),
        offenders=(Offender("gpu", "1652", "gpu-042 GPU 3", 7, "Xids"),),
    )  # fmt: skip
    monkeypatch.setattr(DigestScheduler, "_report", lambda *_: report)
    said = scheduler._body("daily", START - 86_400, START, (), "")
    assert "llama-70b" in said
    assert "gpu-042" in said
    talking.service.analysis.replace(ROUTING)
    said = scheduler._body("daily", START - 86_400, START, (), "")
    assert "a run: 90.0 %" in said
    assert [name for name in SECRET if name in said] == []
