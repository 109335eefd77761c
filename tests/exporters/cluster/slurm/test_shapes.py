"""Slurm's JSON in the shapes of four releases, and whatever else it may turn out to be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrometer_exporters.cluster.slurm import jobs, nodes
from pyrometer_exporters.cluster.slurm.jobs import Job, jobs_of
from pyrometer_exporters.cluster.slurm.nodes import Node, nodes_of
from pyrometer_exporters.cluster.slurm.shapes import MAX_NAMES, names, number, text, words
from pyrometer_exporters.framework.outcome import PartError

FIXTURES = Path(__file__).with_name("fixtures")
RELEASES = ("22.05", "23.02", "23.11", "24.05")

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["jobs", "sinfo", "nodes", "node", "state", "job_state", "name", "partition", "partitions", "reason",
                 "errors", "job_id", "set", "number", "infinite", "state_flags", "user", "time", "description"]
            ),
            inner, max_size=6,
        )
    ),
    max_leaves=25,
)  # fmt: skip


@pytest.mark.parametrize("release", RELEASES)
def test_the_queue_of_every_release_reads_the_same(release: str) -> None:
    found = jobs_of((FIXTURES / f"squeue-{release}.json").read_bytes())
    assert found == [
        Job("4711", "llama-8b", "ada", "gpu", "running", ""),
        Job("4712", "llama-8b", "ada", "gpu", "queued", "Dependency"),
        Job("4713", "tr11-176B-ml", "ada", "gpu", "blocked", "JobHeldUser"),
        Job("4714", "prep", "ada", "cpu", "running", ""),
        Job("4716", "closing", "ada", "gpu", "ending", ""),
        Job("4717", "retry", "ada", "gpu,cpu", "queued", "BeginTime"),
    ]


def test_what_a_running_slurm_answered() -> None:
    """Recorded from Slurm 22.05.8 with jobs running, held and in an array, and nodes drained, down and failed."""
    queue = jobs_of((FIXTURES / "squeue-recorded-22.05.8.json").read_bytes())
    assert [(job.name, job.state, job.reason) for job in queue] == [
        ("llama-8b", "running", ""),
        ("llama-70b", "running", ""),
        ("held", "blocked", "JobHeldUser"),
        ("array", "running", ""),
        ("array", "queued", "JobArrayTaskLimit"),
    ]
    found = nodes_of((FIXTURES / "sinfo-recorded-22.05.8.json").read_bytes())
    assert [(node.name, node.state, node.reason) for node in found] == [
        ("gpu-001", "drained", "GPU 3 Xid 79 [ops]"),
        ("gpu-002", "down", "Not responding"),
        ("gpu-003", "drained", 'quote " and back\\slash'),
        ("gpu-004", "allocated", ""),
        ("gpu-005", "mixed", ""),
        ("gpu-006", "mixed", ""),
        ("gpu-007", "allocated", ""),
    ]
    assert {node.since for node in found[:3]} == {1795320527.0}


@pytest.mark.parametrize("release", RELEASES)
def test_the_nodes_of_every_release_read_the_same(release: str) -> None:
    found = {node.name: node for node in nodes_of((FIXTURES / f"sinfo-{release}.json").read_bytes())}
    assert {name: node.state for name, node in found.items()} == {
        "gpu-001": "allocated", "gpu-002": "mixed", "gpu-003": "drained", "gpu-004": "draining", "gpu-005": "down",
        "gpu-006": "idle", "gpu-007": "planned", "gpu-008": "maintenance", "cpu-001": "powered_down",
    }  # fmt: skip
    assert found["gpu-002"].partitions == ("gpu", "all")
    assert found["gpu-003"].reason == "GPU 5 fell off the bus"
    says_who_and_when = release in ("22.05", "23.02")
    assert found["gpu-003"].since == (1_799_990_000 if says_who_and_when else None)
    assert found["gpu-003"].user == ("ada" if says_who_and_when else "")
    assert found["gpu-001"].since is None


@pytest.mark.parametrize(
    ("states", "reason", "expected"),
    [
        (["RUNNING"], "None", "running"),
        (["PENDING"], "Resources", "queued"),
        (["PENDING"], "Priority", "queued"),
        (["PENDING"], "DependencyNeverSatisfied", "blocked"),
        (["PENDING"], "launch_failed_requeued_held", "blocked"),
        (["PENDING"], "launch failed requeued held", "blocked"),
        (["PENDING", "REQUEUED"], "None", "queued"),
        (["PENDING", "REQUEUED", "NODE_FAIL"], "None", "queued"),
        (["PENDING", "REQUEUE_HOLD"], "JobHeldUser", "blocked"),
        (["SUSPENDED"], "None", "blocked"),
        (["COMPLETING"], "None", "ending"),
        (["FAILED", "COMPLETING"], "NonZeroExitCode", "ending"),
        (["NODE_FAIL"], "None", None),
        (["OUT_OF_MEMORY"], "None", None),
        (["SOMETHING_NEW"], "None", "other"),
        ([], "", "other"),
    ],
)
def test_what_a_jobs_state_means_for_its_run(states: list[str], reason: str, expected: str | None) -> None:
    assert jobs.state_of(words(states), reason) == expected


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ("idle", "idle"), ("IDLE+DRAIN", "drained"), ("drained*", "drained"), ("mixed-", "mixed"), ("idle~", "idle"),
        (["ALLOCATED", "COMPLETING", "DRAIN"], "draining"), (["DOWN", "DRAIN"], "down"),
        (["IDLE", "NOT_RESPONDING"], "down"), (["FUTURE"], None), (["RESERVED", "IDLE"], "reserved"),
        (["IDLE", "CLOUD", "POWERED_DOWN"], "powered_down"), (["IDLE", "DYNAMIC_NORM"], "idle"), ("weird", "unknown"),
        (["IDLE", "FAIL"], "drained"), (["ALLOCATED", "FAIL"], "draining"), ("", "unknown"),
        (["IDLE", "PLANNED"], "planned"), (["MIXED", "PLANNED"], "mixed"), (["IDLE", "BLOCKED"], "reserved"),
        (["IDLE", "PERFCTRS"], "reserved"), (["MIXED", "PERFCTRS"], "mixed"),
        (["DOWN", "NOT_RESPONDING", "REBOOT_ISSUED"], "maintenance"), (["IDLE", "REBOOT_ISSUED"], "maintenance"),
        (["IDLE", "DRAIN", "REBOOT_ISSUED"], "maintenance"), ("reboot^", "maintenance"),
        (["IDLE", "REBOOT_REQUESTED"], "maintenance"), (["ALLOCATED", "REBOOT_REQUESTED"], "allocated"),
        (["MIXED", "DRAIN", "REBOOT_REQUESTED"], "draining"), (["IDLE", "DRAIN", "REBOOT_REQUESTED"], "maintenance"),
        (["IDLE", "REBOOT_CANCELED"], "idle"), (["IDLE", "MAINTENANCE"], "maintenance"), ("maint*", "maintenance"),
        (["DOWN", "MAINTENANCE"], "down"), (["ALLOCATED", "MAINTENANCE", "RESERVED"], "maintenance"),
        (["ALLOCATED", "POWER_DOWN"], "allocated"), (["IDLE", "CLOUD", "POWER_UP"], "powered_down"),
        (["IDLE", "DRAIN", "POWER_DOWN", "POWER_DRAIN"], "drained"), (["UNKNOWN", "NOT_RESPONDING"], "down"),
        (["IDLE", "INVALID_REG"], "down"), (["IDLE", "EXTERNAL"], "idle"), (["IDLE", "DYNAMIC_FUTURE"], "idle"),
        (["INVALID"], "unknown"), (["UNKNOWN"], "unknown"),
    ],
)  # fmt: skip
def test_what_a_nodes_state_means(states: Any, expected: str | None) -> None:
    assert nodes.state_of(words(states)) == expected


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "bad_answer"),
        (b"slurm_load_jobs error: Unable to contact slurm controller", "bad_answer"),
        (b"[]", "bad_answer"),
        (b'{"meta": {}}', "bad_answer"),
        (b'{"jobs": {}, "sinfo": null}', "bad_answer"),
        (b'{"jobs": [], "sinfo": [], "errors": [{"description": "Zero Bytes were transmitted"}]}', "refused"),
        (b'{"jobs": [], "sinfo": [], "errors": ["Invalid user"]}', "refused"),
        (b"[" * 100_000, "bad_answer"),
        (b"\xff\xfe", "bad_answer"),
    ],
)
def test_an_answer_that_is_none_is_not_an_empty_queue(data: bytes, reason: str) -> None:
    for read in (jobs_of, nodes_of):
        with pytest.raises(PartError) as caught:
            read(data)  # type: ignore[operator]
        assert caught.value.reason == reason


@given(JSON)
def test_no_json_breaks_the_reading(value: Any) -> None:
    data = json.dumps(value).encode()
    for read in (jobs_of, nodes_of):
        try:
            found = read(data)  # type: ignore[operator]
        except PartError:
            continue
        for item in found:
            states = jobs.STATES if isinstance(item, Job) else nodes.STATES
            assert item.state in states
            assert all(isinstance(part, str) for part in ((item.name, item.reason, item.user)))


@given(st.lists(JSON, max_size=5))
def test_one_bad_entry_costs_itself_only(entries: list[Any]) -> None:
    good_job = {"job_id": 7, "name": "good", "job_state": ["RUNNING"]}
    good_node = {"node": {"state": ["IDLE"]}, "nodes": {"nodes": ["good"]}, "partition": {"name": "gpu"}}
    assert "good" in [job.name for job in jobs_of(json.dumps({"jobs": [*entries, good_job]}).encode())]
    assert "good" in [node.name for node in nodes_of(json.dumps({"sinfo": [*entries, good_node]}).encode())]


def test_numbers_texts_and_names_in_every_shape() -> None:
    assert [number(v) for v in (3, 2.5, {"set": True, "infinite": False, "number": 4}, {"number": 5})] == [3, 2.5, 4, 5]
    nothing = (None, True, "3", [], {}, {"set": False, "number": 3}, {"set": True, "infinite": True, "number": 0},
               float("nan"), 1 << 5000, {"number": {"number": 3}})  # fmt: skip
    assert [number(v) for v in nothing] == [None] * len(nothing)
    assert [text(v) for v in (" a ", 7, {"number": 8, "set": True}, None, ["x"])] == ["a", "7", "8", "", ""]
    assert list(names("n[1-2,08-10]")) == ["n1", "n2", "n08", "n09", "n10"]
    assert list(names(["a", 3, "", None, "b"])) == ["a", "b"]
    assert list(names("n[5-2]")) == []
    assert list(names("n[x-y]")) == ["n[x-y]"]
    assert list(names("r[1-2]n[1-2]")) != []
    assert len(list(names("n[0-99999999999]"))) <= MAX_NAMES + 1


@pytest.mark.parametrize(
    "typed", [b"L\xfcfter defekt", b"\xff\xfe", b"a\nb\tc", b"\xed\xa0\x80", b"\xe2\x82", b"\\ud800"]
)
def test_whatever_somebody_typed_into_any_field_costs_no_more_than_its_letters(typed: bytes) -> None:
    job = dict.fromkeys(("name", "user_name", "partition", "state_reason", "account"), "XX")
    job_data = json.dumps({"jobs": [{"job_id": 7, "job_state": ["PENDING"], **job}]}).encode().replace(b"XX", typed)
    (found,) = jobs_of(job_data)
    assert (found.job_id, found.state) == ("7", "queued")
    node = {"node": {"state": ["IDLE", "DRAIN"]}, "nodes": {"nodes": ["gpu-002"]}, "partition": {"name": "XX"},
            "reason": {"description": "XX", "user": "XX"}}  # fmt: skip
    (drained,) = nodes_of(json.dumps({"sinfo": [node]}).encode().replace(b"XX", typed))
    assert (drained.name, drained.state) == ("gpu-002", "drained")
    for text_seen in (found.name, found.reason, drained.reason, drained.user, *drained.partitions):
        assert text_seen.splitlines() == [text_seen]
        text_seen.encode("utf-8", "replace")


def test_an_answer_that_was_cut_off_is_none() -> None:
    whole = (FIXTURES / "sinfo-24.05.json").read_bytes()
    for length in range(1, len(whole.strip()), 97):
        for read in (jobs_of, nodes_of):
            with pytest.raises(PartError, match="not JSON"):
                read(whole[:length])  # type: ignore[operator]


def test_a_node_in_two_partitions_is_one_node() -> None:
    row = {"node": {"state": ["IDLE"]}, "nodes": {"nodes": ["n1"]}}
    data = json.dumps({"sinfo": [{**row, "partition": {"name": p}} for p in ("a", "b", "a")]}).encode()
    assert nodes_of(data) == [Node("n1", ("b", "a"), "idle")]
