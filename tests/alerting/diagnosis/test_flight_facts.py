"""The dumps of all ranks are joined: who came to which collective of which group, who did not, and where they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from alerting_fakes import START, FakePrometheus

from pyrometer_alerting.diagnosis import wording
from pyrometer_alerting.diagnosis.evidence import PROVIDERS
from pyrometer_alerting.diagnosis.extent import Group
from pyrometer_alerting.diagnosis.flight_facts import dumps
from pyrometer_alerting.diagnosis.look import Questions, Rank
from pyrometer_alerting.diagnosis.weights import KINDS
from pyrometer_alerting.model.fact import Fact, Roster
from pyrometer_alerting.model.incident import Incident
from pyrometer_kit.prometheus import Series

WORLD, PAIR = ("0", "default_pg", "4"), ("2", "tensor", "2")


def latest(rank: int, group: tuple[str, str, str], number: int, state: str = "waiting", **of: Any) -> Series:
    place = f"train.py:{of.get('line', 21)} in train"
    labels = {
        "attempt": "0", "rank": str(rank), "group": group[0], "group_name": group[1], "group_ranks": group[2],
        "collective": of.get("name", "nccl:all_reduce"), "state": state, "place": place,
    }  # fmt: skip
    return Series(labels, ((START, float(number)),))


def facts(*series: Series, ranks: int = 4, early: Sequence[int] = ()) -> tuple[Fact, ...]:
    prometheus = FakePrometheus()
    prometheus.on("flight_recorder_collective", list(series))
    before_the_last_step = [Series({"attempt": "0", "rank": str(rank)}, ((START, START),)) for rank in early]
    prometheus.on("flight_recorder_dump_timestamp_seconds", before_the_last_step)
    incident = Incident("i", "k", "c1", "NcclHang", "llama", "critical", "train", START, START)
    places = {str(rank): Rank(f"gpu-00{rank // 2}", str(rank % 2), "0") for rank in range(ranks)}
    look = dumps(Questions(prometheus, incident, START, ranks=places))
    assert look.kinds <= KINDS.keys()
    return look.facts


def test_whoever_waits_for_nobody_is_named_with_both_places_in_the_code() -> None:
    (fact,) = facts(
        latest(0, WORLD, 16), latest(1, WORLD, 16), latest(2, WORLD, 15, "finished", line=22),
        latest(3, WORLD, 15, "finished"), latest(2, PAIR, 5, "finished"), latest(3, PAIR, 6, line=19),
    )  # fmt: skip
    assert fact.labels == {"node": "gpu-001", "gpu": "0"}
    assert wording.said(Group(fact.labels, (fact,), 1, 1, 1), Roster()) == (
        "1 of 2 ranks wait in nccl:all_reduce 6 of the tensor group at train.py:19 in train; rank 2 did not reach "
        "it; its last one there was nccl:all_reduce 5 at train.py:21 in train"
    )


def test_a_rank_in_another_collective_of_the_same_number_is_named() -> None:
    (fact,) = facts(
        *(latest(rank, WORLD, 16, name="nccl:broadcast" if rank == 3 else "nccl:all_reduce") for rank in range(4))
    )
    assert fact.labels == {"node": "gpu-001", "gpu": "1"}
    assert fact.detail.endswith("rank 3 is in nccl:broadcast instead at train.py:21 in train")


def test_a_rank_without_a_dump_is_named_where_nobody_else_is_missing() -> None:
    (fact,) = facts(*(latest(rank, WORLD, 16) for rank in range(3)))
    assert fact.detail.endswith("rank 3 has written no dump")
    assert facts(latest(0, WORLD, 16), latest(1, WORLD, 16), ranks=3) == (), "the group has four ranks"


def test_ranks_in_a_receive_and_of_earlier_attempts_are_not_blamed() -> None:
    receive = latest(1, ("", "", ""), 0, name="send or receive")
    assert facts(latest(0, WORLD, 16), latest(1, WORLD, 15, "finished"), receive, ranks=2) == ()
    newer = Series({**latest(1, WORLD, 16).labels, "attempt": "1"}, ((START, 16.0),))
    assert facts(latest(0, WORLD, 17), newer, ranks=2) == ()


def test_both_of_two_that_did_not_come_are_named() -> None:
    found = facts(
        latest(0, WORLD, 16), latest(1, WORLD, 16), latest(2, WORLD, 15, "finished"), latest(3, WORLD, 15, "finished")
    )
    assert [fact.labels["gpu"] for fact in found] == ["0", "1"]


def test_dumps_from_before_the_last_step_name_nobody() -> None:
    of_a_run_that_went_on = [latest(0, WORLD, 16), latest(1, WORLD, 16), latest(2, WORLD, 15), latest(3, WORLD, 16)]
    assert len(facts(*of_a_run_that_went_on)) == 1
    assert facts(*of_a_run_that_went_on, early=range(4)) == ()


def test_a_rank_whose_dump_is_from_before_the_last_step_is_one_without_a_dump() -> None:
    waiting = [latest(rank, WORLD, 16) for rank in range(3)]
    (fact,) = facts(*waiting, latest(3, WORLD, 12), early=[3])
    assert fact.detail.endswith("rank 3 has written no dump")


def test_nobody_is_named_where_nobody_waits_or_no_dump_is_there() -> None:
    assert facts() == ()
    assert facts(*(latest(rank, WORLD, 16, "finished") for rank in range(4))) == ()


def test_the_diagnosis_asks_for_them() -> None:
    assert PROVIDERS["dumps"] is dumps
