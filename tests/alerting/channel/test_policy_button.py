"""The button of a question of the policy: from the click in the fake Slack to the drain and the audit trail."""

from __future__ import annotations

from pathlib import Path

from alerting_fakes import wait_until
from alerting_policy_fakes import CLUSTER, FileScheduler, Findings, policy
from alerting_talking import ALICE, BOB, Talking


def test_a_listed_person_drains_with_a_click_and_anybody_else_does_not(talking: Talking, tmp_path: Path) -> None:
    scheduler = FileScheduler(tmp_path / "truth", count=20)
    worker = talking.service.policy
    worker._prometheus = Findings(["n3"])
    worker.executor.policy, worker.executor.schedulers = policy(do="ask"), {CLUSTER: scheduler}
    worker.step()
    wait_until(lambda: talking.slack.messages("gpu-alerts"))
    assert "may have to be drained" in str(talking.message["blocks"])
    assert "'confirm'" in str(talking.message["blocks"])
    talking.press("policy_drain", BOB)
    wait_until(talking.whispers)
    assert "not on the list" in talking.whispers()[0]
    assert scheduler.calls() == []
    talking.press("policy_drain", ALICE)
    wait_until(lambda: scheduler.calls() == ["n3"])
    wait_until(lambda: len(talking.slack.messages("gpu-alerts")) == 2)
    talking.press("policy_drain", ALICE)
    wait_until(lambda: len(talking.whispers()) == 2)
    assert "already answered" in talking.whispers()[1]
    assert scheduler.calls() == ["n3"]
    assert ("drain_done", f"u0alice ({ALICE})") in talking.audit()
