"""The samples of Slurm: its queue and nodes, its absence, its faults."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pyrometer_exporters.cluster.slurm.collector import COLLECTOR, watched_runs
from pyrometer_exporters.framework.exposition import Renderer
from pyrometer_kit.errors import UsageError
from pyrometer_simulator.slurm import RELEASES, SlurmJob, SlurmNode

JOBS = "pyrometer_slurm_run_jobs"


def _fill(slurm: Any) -> None:
    slurm.jobs = [
        SlurmJob(4711, "llama-8b"),
        SlurmJob(4712, "llama-8b", ("PENDING",), "Dependency"),
        SlurmJob(4713, "other", ("PENDING",), "JobHeldUser"),
        SlurmJob(4710, "llama-8b", ("OUT_OF_MEMORY",), ends=1_799_999_000),
    ]
    slurm.nodes = [
        SlurmNode("gpu-001", ("ALLOCATED",)),
        SlurmNode("gpu-002", partitions=("gpu", "all")),
        SlurmNode("gpu-003", ("IDLE", "DRAIN"), 'GPU 5 "fell off"\\', "ada", 1_799_990_000),
    ]
    slurm.publish()


def test_the_output_is_the_golden_one(cluster: Any, golden: Callable[[str, str], None]) -> None:
    cluster.slurm.release = "23.02"
    _fill(cluster.slurm)
    cluster.start("--collector.slurm.run=llama-8b", "--collector.slurm.run=bloom=tr11-.*")
    samples = cluster.scrape().samples
    text = Renderer().text(samples).decode()
    golden(re.sub(r"(slurm_answer_timestamp_seconds\{.*\}) .*", r"\1 TIME", text), "golden/metrics.txt")
    assert len([s for family in text_string_to_metric_families(text) for s in family.samples]) == len(samples)


@pytest.mark.parametrize("release", RELEASES)
def test_a_run_is_seen_running_queued_and_gone_in_every_release(cluster: Any, release: str) -> None:
    cluster.slurm.release = release
    _fill(cluster.slurm)
    cluster.start("--collector.slurm.run=llama=llama-.*")
    found = cluster.scrape().values
    assert (found[JOBS, "llama", "running"], found[JOBS, "llama", "queued"]) == (1, 1)
    cluster.slurm.jobs = []
    cluster.slurm.publish()
    gone = cluster.until(lambda found: found.values[JOBS, "llama", "running"] == 0).values
    assert {key[2]: value for key, value in gone.items() if key[:2] == (JOBS, "llama")} == dict.fromkeys(
        ("running", "queued", "blocked", "ending", "other"), 0
    )


@pytest.mark.parametrize("release", RELEASES)
def test_how_a_job_has_ended_is_served_in_every_release_for_as_long_as_it_is_listed(cluster: Any, release: str) -> None:
    cluster.slurm.release = release
    cluster.slurm.jobs = [
        SlurmJob(4711, "llama-8b", ends=1_800_000_300),  # its time limit
        SlurmJob(4712, "told to end", ("COMPLETING",), ends=1_800_000_100)
        if release < "23.11"  # one word, which doesn't say how
        else SlurmJob(4712, "told to end", ("CANCELLED", "COMPLETING"), ends=1_800_000_100),
        SlurmJob(4713, "too long", ("TIMEOUT",), ends=1_800_000_200),
        SlurmJob(4714, "of a node that failed, and again in the queue", ("NODE_FAIL", "PENDING"), ends=0),
    ]
    cluster.slurm.publish()
    cluster.start()
    values = cluster.scrape().values
    ends = {key[1:]: value for key, value in values.items() if key[0] == "pyrometer_slurm_job_end_timestamp_seconds"}
    told = {} if release < "23.11" else {("4712", "cancelled"): 1_800_000_100}
    assert ends == {("4713", "timeout"): 1_800_000_200} | told


def test_every_family_that_is_served_is_declared(cluster: Any) -> None:
    _fill(cluster.slurm)
    cluster.start()
    assert {sample.family for sample in cluster.scrape().samples} <= set(COLLECTOR.families)


def test_a_cluster_without_slurm_has_a_reason_and_no_series(cluster: Any) -> None:
    cluster.slurm.remove("squeue")
    cluster.slurm.remove("sinfo")
    cluster.start("--collector.slurm.run=llama-8b")
    found = cluster.scrape()
    assert found.values == {}
    assert found.downs == {"squeue": "no_slurm", "sinfo": "no_slurm"}


@pytest.mark.parametrize(
    ("fault", "reason"),
    [("fail", "failed"), ("hang", "deadline"), ("remove", "no_slurm")],
)
def test_a_command_that_fails_or_hangs_costs_itself_only_and_comes_back(cluster: Any, fault: str, reason: str) -> None:
    _fill(cluster.slurm)
    getattr(cluster.slurm, fault)("squeue")
    cluster.start("--collector.slurm.run=llama-8b")
    found = cluster.scrape()
    assert found.downs == {"squeue": reason}
    assert found.values["pyrometer_slurm_nodes", "drained"] == 1
    assert not any(key[0] == JOBS for key in found.values), "unknown is not zero"
    cluster.slurm.publish()
    back = cluster.until(lambda found: not found.downs)
    assert back.values[JOBS, "llama-8b", "running"] == 1


def test_a_failure_is_told_in_slurms_own_words(cluster: Any) -> None:
    cluster.slurm.fail("squeue", "Unable to contact slurm controller (connect failure)")
    cluster.start()
    assert "Unable to contact slurm controller" in cluster.scrape().details["squeue"]


def test_a_hanging_command_leaves_no_process_behind(cluster: Any) -> None:
    mark = str(cluster.slurm.folder)
    cluster.slurm.hang("squeue")
    cluster.start()
    assert cluster.scrape().downs["squeue"] == "deadline"
    cluster.collector.close()
    left = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            left += [path] if f"{mark}/squeue" in path.read_text(errors="replace") else []
        except OSError:
            continue
    assert left == []


def test_an_answer_without_end_is_cut_off(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyrometer_exporters.cluster.slurm.command.MAX_ANSWER_BYTES", 1 << 20)
    cluster.slurm._script("squeue", "while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done")
    cluster.start("--collector.slurm.timeout=20")
    assert cluster.scrape().downs["squeue"] == "too_large"


def test_a_command_that_may_not_be_run_is_no_slurm_without_it(cluster: Any) -> None:
    Path(cluster.slurm.squeue).chmod(0o644)
    cluster.start()
    found = cluster.scrape()
    assert found.downs == {"squeue": "not_started"}
    assert "ermission" in found.details["squeue"]


def test_only_the_partitions_that_were_named_are_asked_for(cluster: Any) -> None:
    cluster.slurm._script("squeue", 'echo "$@" >&2; exit 1')
    cluster.start("--collector.slurm.partitions=gpu,all")
    assert "--all --states=all --json --partition=gpu,all" in cluster.scrape().details["squeue"]


@pytest.mark.parametrize(
    ("whole", "reason"), [("exec cat /dev/zero", "too_large"), ("sleep 600", "deadline")], ids=["endless", "late"]
)
def test_a_watched_run_is_asked_for_by_name_where_the_queue_is_too_long(
    cluster: Any, whole: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyrometer_exporters.cluster.slurm.command.MAX_ANSWER_BYTES", 1 << 20)
    _fill(cluster.slurm)
    answer = cluster.slurm.folder / "squeue.answer"
    cluster.slurm._script("squeue", f'case "$*" in *--name=llama-8b,gone) cat {answer};; *) {whole};; esac')
    cluster.start(*(f"--collector.slurm.run={run}" for run in ("llama-8b", "gone", "bloom=tr11-.*", "a,b")))
    found = cluster.until(lambda found: (JOBS, "llama-8b", "running") in found.values)
    assert found.downs == {"squeue": reason}
    assert found.values[JOBS, "llama-8b", "running"] == found.values[JOBS, "llama-8b", "queued"] == 1
    assert found.values[JOBS, "gone", "running"] == 0, "nothing of this name is in the queue: that is known"
    assert not any(key[:2] in ((JOBS, "bloom"), (JOBS, "a,b")) for key in found.values), "no name to ask by"
    assert not any(key[0] == "pyrometer_slurm_jobs" for key in found.values), "a part of the queue is not the queue"
    assert ("pyrometer_slurm_answer_timestamp_seconds", "squeue") not in found.values


def test_only_the_users_that_were_named_are_asked_for(cluster: Any) -> None:
    cluster.slurm._script("squeue", 'echo "$@" >&2; exit 1')
    cluster.start("--collector.slurm.users=ada,bob")
    assert "--all --states=all --json --user=ada,bob" in cluster.scrape().details["squeue"]


@pytest.mark.parametrize("given", [["a", "a"], ["=x"], ["a=("]])
def test_a_wrong_run_is_one_line(given: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        watched_runs(given)
    assert f"--collector.slurm.run={given[-1]}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_runs_jobs_are_called_as_the_run_or_as_the_expression_says() -> None:
    plain, pattern = watched_runs(["llama.8b", "bloom=tr11-.*|tr12"])
    assert plain.jobs.match("llama.8b")
    assert not plain.jobs.match("llama-8b")
    assert not plain.jobs.match("llama.8b-eval")
    assert pattern.jobs.match("tr12")
    assert not pattern.jobs.match("atr11-")
