from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from alerting_fakes import SILENT, START, FakePrometheus, alert

from pyrometer_alerting.diagnosis.death import died_by, restart_note, without_later_facts
from pyrometer_alerting.diagnosis.look import Look
from pyrometer_alerting.diagnosis.occupancy import held_up_by_another, use_of
from pyrometer_alerting.incidents.lifecycle import fold
from pyrometer_alerting.model.fact import Fact
from pyrometer_alerting.model.harm import IDLE, PROCESS, UNREPORTED, urgency
from pyrometer_alerting.model.incident import Cause, Diagnosis, Incident
from pyrometer_alerting.model.places import Topology
from pyrometer_kit.prometheus import Series


def incident(name: str = "GpuXidCritical", **labels: str) -> Incident:
    opened = fold(None, [alert(name, labels={"node": "n1", "component": "gpu", **labels})], 0, START)
    assert opened is not None
    return opened.incident


def series(value: float = 1.0, **labels: str) -> Series:
    return Series({"node": "n1", **labels}, ((START, value),))


def processes(job: float = 0, none: float = 0, hidden: float = 0, gpu: str = "3") -> list[Series]:
    counts = {"job": job, "none": none, "hidden": hidden}
    return [series(count, gpu=gpu, attribution=name) for name, count in counts.items()]


@pytest.mark.parametrize(
    ("ranks", "jobs", "counted", "use"),
    [
        ([series(gpu="3", run="llama")], [], [], "run llama"),
        ([series(gpu="3", run="llama"), series(gpu="3", run="vlm")], [], [], "run llama and 1 more"),
        ([], [series(gpu="3", job_id="4711")], [], "job 4711"),
        ([], [], processes(), IDLE),
        ([], [], processes(none=1), PROCESS),
        ([], [], processes(hidden=1), PROCESS),
        ([], [], [], UNREPORTED),
        ([series(gpu="4", run="llama")], [], processes(), IDLE),
        ([], [], processes(gpu="4"), UNREPORTED),
    ],
    ids=["a run", "two runs", "a job", "idle", "a process", "hidden", "not known", "another GPU's run", "not listed"],
)
def test_who_uses_a_gpu(ranks: Sequence[Series], jobs: Sequence[Series], counted: Sequence[Series], use: str) -> None:
    prometheus = FakePrometheus()
    prometheus.on("rank_info", list(ranks))
    prometheus.on("job_info", list(jobs))
    prometheus.on("gpu_processes", list(counted))
    assert use_of(prometheus, incident(gpu="3"), START) == use


@pytest.mark.parametrize(
    ("alertname", "cause", "slowed_by"),
    [
        ("GpuThrottledThermal", Cause("n2", "slow disk", labels={"node": "n2"}, confidence="medium"), "n2"),
        ("GpuThrottledThermal", Cause("no single part", "garbage collection", confidence="high"), "garbage collection"),
        ("GpuThrottledThermal", Cause("n2", "slow disk", labels={"node": "n2"}, confidence="low"), ""),
        ("GpuThrottledThermal", Cause("n1", "slow disk", labels={"node": "n1"}, confidence="high"), ""),
        ("GpuThrottledThermal", Cause("unknown", "", confidence="high"), ""),
        ("GpuLost", Cause("n2", "slow disk", labels={"node": "n2"}, confidence="high"), ""),
    ],
    ids=["another node", "no part", "not proven", "its own node", "unknown", "a loss"],
)
def test_a_throttled_gpu_is_no_emergency_while_something_else_holds_its_run_up(
    alertname: str, cause: Cause, slowed_by: str
) -> None:
    throttled = incident(alertname, gpu="3", severity="critical")
    slow = replace(incident("TrainMfuDropped", run="llama"), diagnosis=Diagnosis(START, (cause,)))
    for ended, expected in ((None, slowed_by), (START + 60, "")):
        incidents = [throttled, replace(slow, resolved_at=ended)]
        use = held_up_by_another(throttled, "run llama", incidents.copy, Topology())
        assert use == ("run llama, slowed by " + expected if expected else "run llama")
        assert urgency(replace(throttled, use=use)) == ("warning" if expected else "critical")


def test_a_name_of_a_run_makes_no_emergency_less() -> None:
    prometheus = FakePrometheus()
    prometheus.on("rank_info", [series(gpu="3", run="x, slowed by nothing")])
    xid = incident(gpu="3", severity="critical")
    use = use_of(prometheus, xid, START)
    assert use == "run x nothing"
    assert urgency(replace(xid, use="run x, slowed by nothing")) == "critical"


def test_a_port_is_used_by_whoever_is_on_its_node() -> None:
    prometheus = FakePrometheus()
    prometheus.on("rank_info", [series(gpu="5", run="llama")])
    assert use_of(prometheus, incident("NicLinkDown", device="mlx5_0", port="1"), START) == "run llama"


def test_no_answer_says_nothing() -> None:
    prometheus = FakePrometheus()
    prometheus.on("", SILENT)
    assert use_of(prometheus, incident(gpu="3"), START) == ""


@pytest.mark.parametrize(
    ("attempts", "checkpoint", "note"),
    [
        (["0"], START - 2520, "first death, attempt 0, last checkpoint 0.7 h before"),
        (["0", "1", "2"], None, "attempt 2, died before, last checkpoint unknown"),
        ([], None, "attempt unknown, last checkpoint unknown"),
    ],
)
def test_what_is_known_of_a_death(attempts: list[str], checkpoint: float | None, note: str) -> None:
    prometheus = FakePrometheus()
    prometheus.on("run_info", [series(attempt=attempt) for attempt in attempts])
    prometheus.on("last_checkpoint", [series(checkpoint)] if checkpoint is not None else [])
    died = incident("TrainRunDied", run="r", component="train")
    assert restart_note(prometheus, died, START) == note
    assert restart_note(prometheus, incident("TrainStalled", run="r", component="train"), START) == ""


def test_what_begins_on_its_parts_after_a_death_did_not_kill_a_run() -> None:
    before, after = (
        Fact("xid_fatal", {"node": "n1"}, "79", began=at, precision=30.0) for at in (START + 20, START + 31)
    )
    facts = (
        before,
        after,
        Fact("alert", {"node": "n1"}, "GpuLost", began=START + 110, precision=120.0),
        Fact("silent", {}),
    )
    died, lives = (incident(name, run="r", component="train") for name in ("TrainRunDied", "TrainStalled"))
    assert without_later_facts(Look(facts), died_by(died)).facts == (before, *facts[2:])
    assert without_later_facts(Look(facts), died_by(lives)).facts == facts
