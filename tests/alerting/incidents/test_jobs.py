"""Runs of one name: each job has its message; the jobs of one user that follow each other share one."""

from __future__ import annotations

import pytest
from alerting_fakes import Bench, raw_alert

from pyrometer_alerting.model.incident import Incident


def told(bench: Bench, job_id: str = "", user: str = "", *, name: str = "TrainStalled", firing: bool = True) -> None:
    now = bench.clock.time
    alert = raw_alert(
        name,
        firing=firing,
        starts_at=now - 2 if firing else now - 62,
        ends_at=now,
        annotations={"summary": "Run train has stalled: rank 1 on gpu-002 fell silent first", "user": user},
        run="train",
        component="train",
        **({"job_id": job_id} if job_id else {}),
    )
    bench.receive(alert, groupKey=f"{name}/{job_id}/{bench.clock.time}")
    bench.clock.time += 60


def incidents(bench: Bench) -> list[Incident]:
    with bench.store.transaction() as tx:
        return [one for one in tx.incidents() if not one.joined_into]


def test_two_runs_of_one_name_have_a_message_each_with_owner_and_job(bench: Bench) -> None:
    told(bench, "4711", "ada")
    told(bench, "4712", "bo", name="TrainMfuDropped")
    bench.deliver()
    headers = {message["blocks"][0]["text"]["text"] for message in bench.messages}
    assert len(headers) == 2
    assert sum("train (ada, 4711)" in header for header in headers) == 1
    assert sum("train (bo, 4712)" in header for header in headers) == 1


def test_the_next_job_of_its_user_goes_on_in_the_message_once_nothing_of_the_first_fires(bench: Bench) -> None:
    told(bench, "4711", "ada")
    told(bench, "4711", "ada", firing=False)
    told(bench, "4720", "ada")
    (one,) = incidents(bench)
    assert (one.job_id, one.firing, len(one.episodes)) == ("4720", True, 1)
    told(bench, "4720", "ada", name="TrainMfuDropped")
    assert len(incidents(bench)) == 1


@pytest.mark.parametrize(("user", "ended"), [("bo", True), ("", True), ("ada", False)])
def test_another_job_of_the_name_does_not(bench: Bench, user: str, *, ended: bool) -> None:
    told(bench, "4711", "ada")
    if ended:
        told(bench, "4711", "ada", firing=False)
    told(bench, "4720", user)
    assert sorted(one.job_id for one in incidents(bench)) == ["4711", "4720"]


@pytest.mark.parametrize("jobs", [("", "4711"), ("4711", ""), ("", "4711", "")])
def test_over_an_upgrade_and_back_a_run_keeps_its_message(bench: Bench, jobs: tuple[str, ...]) -> None:
    for job_id in jobs:
        told(bench, job_id, "ada" if job_id else "")
    (one,) = incidents(bench)
    assert one.job_id == "4711"


def test_an_alert_without_a_job_joins_none_of_two_runs_of_its_name(bench: Bench) -> None:
    told(bench, "4711", "ada")
    told(bench, "4712", "bo")
    told(bench)
    assert sorted(one.job_id for one in incidents(bench)) == ["", "4711", "4712"]
