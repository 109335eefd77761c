"""The ranks that a hung job waits for are found from counts alone; none is certain where counts don't decide."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrometer_kit.collectives import NOT_READY, Communicator, Suspect, culprits, standing
from pyrometer_simulator.nccl.job import Job, Layout, layouts


def ranks(found: list[Suspect], *, certain: bool | None = None) -> set[int]:
    return {suspect.rank for suspect in found if certain in (None, suspect.certain)}


def test_a_rank_that_is_behind_because_it_waits_elsewhere_is_no_culprit() -> None:
    found = culprits([Communicator("tensor", {0: 41, 1: 40}), Communicator("data", {0: 6, 2: 7})])
    assert found == [Suspect(1, "behind", certain=True, communicator="tensor", launched=40, expected=41, waiting=1)]


def test_the_message_has_its_numbers() -> None:
    launched = {rank: 6649 if rank == 21 else 6650 for rank in range(32)}
    (found,) = culprits([Communicator("data", launched)])
    assert found == Suspect(21, "behind", certain=True, communicator="data", launched=6649, expected=6650, waiting=31)


def test_nobody_is_named_when_all_launched_the_same() -> None:
    assert culprits([Communicator("data", {0: 5, 1: 5})]) == []
    assert culprits([]) == []


def test_a_dead_rank_explains_those_that_wait_for_it_in_what_is_not_counted() -> None:
    pipeline = Communicator("pipeline", {1: 0}, {0: "dead"})
    world = Communicator("world", {1: 2, 2: 2, 3: 2}, {0: "dead"}, {0: 2})
    found = culprits([pipeline, Communicator("data", {1: 5, 3: 6}), world])
    assert [(suspect.rank, suspect.state, suspect.certain) for suspect in found] == [(0, "dead", True)]


def test_a_rank_that_is_late_beside_a_dead_one_is_named_without_certainty_or_with_it() -> None:
    found = culprits([
        Communicator("a", {0: 5, 1: 4}),
        Communicator("b", {2: 9}, {3: "unresponsive"}),
        Communicator("world", {0: 1, 1: 1, 2: 1}, {3: "unresponsive"}),
    ])  # fmt: skip
    assert ranks(found) == {1, 3}
    assert 3 in ranks(found, certain=True)


def test_stages_that_may_wait_for_each_other_are_all_named_and_none_as_certain() -> None:
    stages = [
        Communicator("pipeline", {0: 0, 1: 0}),
        Communicator("data-0", {0: 4, 2: 5}),
        Communicator("data-1", {1: 4, 3: 5}),
        Communicator("world", dict.fromkeys(range(4), 7)),
    ]
    assert ranks(culprits(stages)) == {0, 1}
    assert ranks(culprits(stages), certain=True) == set()
    assert ranks(culprits(stages, {0: True, 1: False}), certain=True) == {1}


def test_evidence_against_the_only_candidate_takes_its_certainty() -> None:
    found = culprits([Communicator("data", {0: 4, 1: 5})], {0: True})
    assert [(suspect.rank, suspect.certain) for suspect in found] == [(0, False)]


def test_ranks_that_wait_in_a_circle_are_named_without_certainty() -> None:
    found = culprits([Communicator("a", {0: 4, 1: 5}), Communicator("b", {0: 5, 1: 4})])
    assert ranks(found) == {0, 1}
    assert ranks(found, certain=True) == set()


def test_a_communicator_that_is_being_set_up_waits_for_those_that_have_not_joined() -> None:
    found = culprits([Communicator("new", {0: NOT_READY, 1: NOT_READY}, {2: "missing"})])
    assert [(suspect.rank, suspect.state) for suspect in found] == [(2, "missing")]
    found = culprits([Communicator("new", {0: 0, 1: 0, 2: NOT_READY})])
    assert [(suspect.rank, suspect.state) for suspect in found] == [(2, "not_ready")]


def test_ranks_that_have_not_joined_several_communicators_are_not_certain() -> None:
    """Rank 1 may be late because it waits for rank 2, in a send that is listed nowhere."""
    first, second = Communicator("a", {0: NOT_READY}, {1: "missing"}), Communicator("b", {3: NOT_READY}, {2: "missing"})
    assert ranks(culprits([first, second])) == {1, 2}
    assert ranks(culprits([first, second]), certain=True) == set()
    node = Communicator("world", {0: NOT_READY, 3: NOT_READY}, {1: "missing", 2: "missing"})
    assert ranks(culprits([node]), certain=True) == {1, 2}


def test_a_rank_that_has_left_its_communicator_is_no_culprit() -> None:
    assert culprits([Communicator("ending", {0: 5, 1: 5}, {2: "missing"})]) == []


def test_only_what_has_not_moved_stands() -> None:
    before = {"a": {0: 5, 1: 5}, "b": {0: 5, 1: 5}}
    now = {"a": {0: 5, 1: 5}, "b": {0: 5, 1: 6}, "c": {0: 1}}
    assert list(standing(before, now)) == ["a"]


@pytest.mark.parametrize("layout", layouts(32), ids=lambda layout: layout.name)
@pytest.mark.parametrize("seed", range(6))
def test_the_culprit_is_named_in_every_kind_of_groups_and_no_other_as_certain(layout: Layout, seed: int) -> None:
    chance = random.Random(f"{layout.name} {seed}")  # noqa: S311  any order will do
    job = Job(layout)
    job.run()
    before = job.counts()
    culprit = chance.randrange(32)
    places = [at for at, op in enumerate(job.programs[culprit]) if op.do in ("compute", "launch")]
    job.stop(culprit, len(job.programs[culprit]) + chance.choice(places))
    job.run(2)
    dead = {culprit} if seed % 2 else set()
    found = culprits(job.communicators(dead, before))
    assert culprit in ranks(found)
    assert ranks(found, certain=True) <= {culprit}
    evidence = {rank: job.waits(rank) for rank in range(32) if rank not in dead}
    assert ranks(culprits(job.communicators(dead, before), evidence), certain=True) == {culprit}


counts = st.dictionaries(st.integers(0, 9), st.integers(-1, 5), max_size=8)
states = st.dictionaries(st.integers(0, 9), st.sampled_from(["dead", "unresponsive", "missing"]), max_size=3)


@given(st.lists(st.tuples(counts, states), max_size=6))
def test_whoever_is_named_is_behind_or_absent(groups: list[tuple[dict[int, int], dict[int, str]]]) -> None:
    communicators = [
        Communicator(str(number), {rank: count for rank, count in launched.items() if rank not in absent}, absent)
        for number, (launched, absent) in enumerate(groups)
    ]
    found = culprits(communicators)
    assert len(ranks(found)) == len(found)
    for suspect in found:
        place = communicators[int(suspect.communicator)]
        behind = place.launched.get(suspect.rank, NOT_READY) < max(place.launched.values(), default=0)
        assert suspect.rank in place.absent or behind
