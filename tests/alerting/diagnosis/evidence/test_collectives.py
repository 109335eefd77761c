"""A hang in a collective is told with its counts: who waits in what, whom for, and where that rank is.

RAS counts collectives; the dumps of all ranks are joined, who came to which collective of which group; and GPUs that
spin at low power wait in one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from alerting_fakes import START, FakePrometheus

from pyrometer_alerting.diagnosis import wording
from pyrometer_alerting.diagnosis.catalog import load
from pyrometer_alerting.diagnosis.evidence.alerts import alerts
from pyrometer_alerting.diagnosis.evidence.collectives import collectives, idle_beside_spinning
from pyrometer_alerting.diagnosis.extent import Group
from pyrometer_alerting.diagnosis.flight_recorder import dumps
from pyrometer_alerting.diagnosis.look import Look, Questions, Rank
from pyrometer_alerting.model.fact import Fact, Roster
from pyrometer_alerting.model.incident import Alert, Incident
from pyrometer_kit.prometheus import Series

WORLD, PAIR = ("0", "default_pg", "4"), ("2", "tensor", "2")
ROSTER = Roster("0", {"gpu-001": tuple(map(str, range(8)))})


def point(value: float, **labels: str) -> Series:
    return Series(labels, ((START, value),))


def behind(rank: str, gpu: str, *, state: str = "behind", certain: str = "yes") -> Series:
    labels = {"node": "gpu-010", "gpu": gpu, "rank": rank, "state": state, "certain": certain, "comm": "0x1"}
    return point(1, **labels)


def facts(prometheus: FakePrometheus) -> tuple[Fact, ...]:
    incident = Incident("i", "k", "c1", "NcclHang", "llama", "critical", "train", START, START)
    look = collectives(Questions(prometheus, incident, START))
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
    group = Group.single(replace(fact, seen_at=START))
    assert wording.said(group, Roster(), load().kinds) == (
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


def latest(rank: int, group: tuple[str, str, str], number: int, state: str = "waiting", **of: Any) -> Series:
    place = f"train.py:{of.get('line', 21)} in train"
    labels = {
        "attempt": "0", "rank": str(rank), "group": group[0], "group_name": group[1], "group_ranks": group[2],
        "collective": of.get("name", "nccl:all_reduce"), "state": state, "place": place,
    }  # fmt: skip
    return Series(labels, ((START, float(number)),))


def missing(*series: Series, ranks: int = 4, early: Sequence[int] = ()) -> tuple[Fact, ...]:
    prometheus = FakePrometheus()
    prometheus.on("flight_recorder_collective", list(series))
    before_the_last_step = [Series({"attempt": "0", "rank": str(rank)}, ((START, START),)) for rank in early]
    prometheus.on("flight_recorder_dump_timestamp_seconds", before_the_last_step)
    incident = Incident("i", "k", "c1", "NcclHang", "llama", "critical", "train", START, START)
    places = {str(rank): Rank(f"gpu-00{rank // 2}", str(rank % 2), "0") for rank in range(ranks)}
    look = dumps(Questions(prometheus, incident, START, ranks=places))
    return look.facts


def test_the_rank_that_waits_for_nobody_is_named_with_both_code_locations() -> None:
    (fact,) = missing(
        latest(0, WORLD, 16), latest(1, WORLD, 16), latest(2, WORLD, 15, "finished", line=22),
        latest(3, WORLD, 15, "finished"), latest(2, PAIR, 5, "finished"), latest(3, PAIR, 6, line=19),
    )  # fmt: skip
    assert fact.labels == {"node": "gpu-001", "gpu": "0"}
    assert wording.said(Group.single(fact), Roster(), load().kinds) == (
        "1 of 2 ranks wait in nccl:all_reduce 6 of the tensor group at train.py:19 in train; rank 2 did not reach "
        "it; its last one there was nccl:all_reduce 5 at train.py:21 in train"
    )


def test_a_rank_in_another_collective_of_the_same_number_is_named() -> None:
    (fact,) = missing(
        *(latest(rank, WORLD, 16, name="nccl:broadcast" if rank == 3 else "nccl:all_reduce") for rank in range(4))
    )
    assert fact.labels == {"node": "gpu-001", "gpu": "1"}
    assert fact.detail.endswith("rank 3 is in nccl:broadcast instead at train.py:21 in train")


def test_a_rank_without_a_dump_is_named_where_nobody_else_is_missing() -> None:
    (fact,) = missing(*(latest(rank, WORLD, 16) for rank in range(3)))
    assert fact.detail.endswith("rank 3 has written no dump")
    assert missing(latest(0, WORLD, 16), latest(1, WORLD, 16), ranks=3) == (), "the group has four ranks"


def test_ranks_in_a_receive_and_of_earlier_attempts_are_not_blamed() -> None:
    receive = latest(1, ("", "", ""), 0, name="send or receive")
    assert missing(latest(0, WORLD, 16), latest(1, WORLD, 15, "finished"), receive, ranks=2) == ()
    newer = Series({**latest(1, WORLD, 16).labels, "attempt": "1"}, ((START, 16.0),))
    assert missing(latest(0, WORLD, 17), newer, ranks=2) == ()


def test_both_of_two_that_did_not_come_are_named() -> None:
    found = missing(
        latest(0, WORLD, 16), latest(1, WORLD, 16), latest(2, WORLD, 15, "finished"), latest(3, WORLD, 15, "finished")
    )
    assert [fact.labels["gpu"] for fact in found] == ["0", "1"]


def test_dumps_from_before_the_last_step_name_nobody() -> None:
    of_a_run_that_went_on = [latest(0, WORLD, 16), latest(1, WORLD, 16), latest(2, WORLD, 15), latest(3, WORLD, 16)]
    assert len(missing(*of_a_run_that_went_on)) == 1
    assert missing(*of_a_run_that_went_on, early=range(4)) == ()


def test_a_rank_whose_dump_is_from_before_the_last_step_is_one_without_a_dump() -> None:
    waiting = [latest(rank, WORLD, 16) for rank in range(3)]
    (fact,) = missing(*waiting, latest(3, WORLD, 12), early=[3])
    assert fact.detail.endswith("rank 3 has written no dump")


def test_nobody_is_named_where_nobody_waits_or_no_dump_is_there() -> None:
    assert missing() == ()
    assert missing(*(latest(rank, WORLD, 16, "finished") for rank in range(4))) == ()


def look(utils: dict[int, float], powers: dict[int, float], alert: str = "TrainStalled") -> Look:
    """Look at a node with eight GPUs, which spin unless said otherwise."""
    prometheus = FakePrometheus()
    for pattern, values, usual in (("GPU_UTIL", utils, 100.0), ("POWER_USAGE", powers, 0.21)):
        prometheus.on(
            pattern,
            [
                Series({"node": "gpu-001", "gpu": str(gpu)}, ((START, values.get(gpu, usual)),))
                for gpu in range(8)
            ],
        )  # fmt: skip
    member = Alert(f"{alert}-1", firing=True, labels={"alertname": alert}, annotations={}, starts_at=START)
    incident = Incident("i", "k", "c1", alert, "llama", "critical", "train", START, START, members=(member,))
    return idle_beside_spinning(Questions(prometheus, incident, START, roster=ROSTER))


def test_the_gpu_that_idles_while_seven_spin_is_named() -> None:
    (fact,) = look({5: 0.0}, {5: 0.12}).facts
    assert fact.labels == {"node": "gpu-001", "gpu": "5"}
    assert fact.detail == (
        "7 of the run's 8 GPUs spin at full utilisation and 20 % of their power limit, as in a collective; "
        "this one is at 0 % utilisation and 10 %"
    )


def test_a_gpu_that_still_computes_is_named_by_its_power() -> None:
    (fact,) = look({}, {2: 0.93}).facts
    assert fact.labels["gpu"] == "2"


def test_nobody_is_named_where_all_spin_most_compute_or_the_run_makes_steps() -> None:
    assert look({}, {}).facts == ()
    assert look({}, dict.fromkeys(range(1, 8), 0.9)).facts == ()
    assert look(dict.fromkeys(range(5), 0.0), {}).facts == ()
    assert look({5: 0.0}, {5: 0.12}, alert="TrainMfuDropped").facts == ()
