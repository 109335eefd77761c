"""A hang in a collective is told with its counts: who waits in what, whom for, and where that rank is."""

from __future__ import annotations

from dataclasses import replace

from alerting_fakes import START, FakePrometheus

from pyrometer_alerting.diagnosis import wording
from pyrometer_alerting.diagnosis.alert_facts import alerts
from pyrometer_alerting.diagnosis.collective_facts import collectives
from pyrometer_alerting.diagnosis.extent import Group
from pyrometer_alerting.diagnosis.look import Questions
from pyrometer_alerting.diagnosis.weights import KINDS
from pyrometer_alerting.model.fact import Fact, Roster
from pyrometer_alerting.model.incident import Alert, Incident
from pyrometer_kit.prometheus import Series


def point(value: float, **labels: str) -> Series:
    return Series(labels, ((START, value),))


def behind(rank: str, gpu: str, *, state: str = "behind", certain: str = "yes") -> Series:
    labels = {"node": "gpu-010", "gpu": gpu, "rank": rank, "state": state, "certain": certain, "comm": "0x1"}
    return point(1, **labels)


def facts(prometheus: FakePrometheus) -> tuple[Fact, ...]:
    incident = Incident("i", "k", "c1", "NcclHang", "llama", "critical", "train", START, START)
    look = collectives(Questions(prometheus, incident, START))
    assert look.kinds <= KINDS.keys()
    return look.facts


def test_the_sentence_has_the_operation_the_rank_and_its_part() -> None:
    prometheus = FakePrometheus()
    prometheus.on("rank_behind:named", [behind("21", "5")])
    prometheus.on("waiting_ranks", [point(31)])
    prometheus.on("communicator_ranks", [point(32)])
    counts = [("AllReduce", "max", 6650), ("AllReduce", "min", 6649), ("Broadcast", "max", 3), ("Broadcast", "min", 3)]
    found = [point(value, collective=kind, bound=bound) for kind, bound, value in counts]
    prometheus.on("collectives_total", found)
    prometheus.on("nccl_group_info", [point(1, name="data-parallel")])
    prometheus.on("current_part", [point(71, part="forward")])
    prometheus.on("stack_info", [point(1, place="dataloader.py:88")])
    (fact,) = facts(prometheus)
    assert fact.labels == {"node": "gpu-010", "gpu": "5"}
    assert fact.strength == 1.0
    group = Group(fact.labels, (replace(fact, seen_at=START),), 1, 1, 1)
    assert wording.said(group, Roster()) == (
        "31 of 32 ranks wait in AllReduce 6,650 of the data-parallel group; rank 21 (gpu-010 GPU 5) launched 6,649 and "
        "is in forward at dataloader.py:88 for 71 s"
    )


def test_a_group_has_a_name_only_where_all_of_its_size_have_the_same() -> None:
    for names in ([], ["default_pg"], ["DP", "EP"]):
        prometheus = FakePrometheus()
        prometheus.on("rank_behind:named", [behind("21", "5")])
        prometheus.on("waiting_ranks", [point(31)])
        prometheus.on("communicator_ranks", [point(32)])
        prometheus.on("nccl_group_info", [point(1, name=name) for name in names])
        assert facts(prometheus)[0].detail == (
            "31 of 32 ranks wait in a collective; rank 21 (gpu-010 GPU 5) launched 1 fewer"
        )


def test_a_dead_rank_is_told_without_its_counts() -> None:
    prometheus = FakePrometheus()
    prometheus.on("rank_behind:named", [behind("21", "5", state="dead"), behind("3", "3", certain="no")])
    assert [fact.detail for fact in facts(prometheus)] == ["rank 21 (gpu-010 GPU 5) is dead"]


def test_several_that_may_be_meant_weigh_less_together_than_one() -> None:
    prometheus = FakePrometheus()
    prometheus.on("rank_behind:named", [behind("4", "4", certain="no"), behind("5", "5", certain="no")])
    assert [fact.strength for fact in facts(prometheus)] == [0.5, 0.5]


def test_a_healthy_job_has_no_such_fact() -> None:
    assert facts(FakePrometheus()) == ()


def test_an_alert_that_names_a_gpu_without_its_rank_is_a_fact_on_the_gpu() -> None:
    labels = {"alertname": "NcclStraggler", "run": "llama", "node": "gpu-010", "gpu": "5"}
    member = Alert("f", firing=True, labels=labels, annotations={}, starts_at=START)
    incident = Incident("i", "k", "c1", "slow run", "llama", "warning", "train", START, START, members=(member,))
    (fact,) = [one for one in alerts(Questions(FakePrometheus(), incident, START)).facts if one.kind == "symptom"]
    assert (fact.labels, fact.detail) == ({"node": "gpu-010", "gpu": "5"}, "NcclStraggler: its rank")
