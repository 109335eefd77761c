"""64 nodes under the policy, two services at once: a shared fault drains none, one of a single node that one alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from alerting_policy_fakes import FileScheduler
from tests.play import MINUTE, NODES, Fault, Fleet, Play, Time, playing

from pyrometer_alerting.policy.rules import Limits


@dataclass
class Filed(Play):
    """A play on schedulers that are files."""

    schedulers: Mapping[str, FileScheduler]

    def drained(self) -> set[str]:
        return {node for scheduler in self.schedulers.values() for node in scheduler.calls()}


@pytest.fixture
def clock() -> Time:
    return Time()


@contextmanager
def played(tmp_path: Path, clock: Time, databases: int, clusters: int = 1, do: str = "drain") -> Iterator[Filed]:
    size = len(NODES) // clusters
    names = [f"c{n}" for n in range(1, clusters + 1)]
    of = {node: names[min(n // size, clusters - 1)] for n, node in enumerate(NODES)}
    schedulers = {
        name: FileScheduler(tmp_path / name, names=[node for node in NODES if of[node] == name]) for name in names
    }
    fleet = Fleet(clock, clock.wall(), clusters=lambda node: of[node])
    with playing(tmp_path, fleet, schedulers, databases=databases, do=do) as play:
        yield Filed(play.fleet, schedulers, play.services, play.stores)


@pytest.fixture(params=[1, 2], ids=["one database", "two databases"])
def play(tmp_path: Path, clock: Time, request: pytest.FixtureRequest) -> Iterator[Filed]:
    with played(tmp_path, clock, request.param) as one:
        yield one


SHARED: Mapping[str, Callable[[int], list[Fault]]] = {
    "a file that lies about every node": lambda _n: [("gpu_count", 2, 90)],
    "a rollout, eight nodes a minute": lambda n: [("hca_links", 2 + n // 8, 30)],
    "a file server that restarts": lambda _n: [("network_mounts", 2, 14)],
    "a job that fills /dev/shm of sixteen nodes": lambda n: [("shared_memory", 2, 20)] * (n % 4 == 0),
    "a stranger who breaks four nodes, one a minute": lambda n: [("hca_links", 2 + n, 30)] * (n < 4),
}


@pytest.mark.parametrize("name", SHARED)
def test_a_shared_fault_drains_nobody_and_asks_a_person_once(tmp_path: Path, clock: Time, name: str) -> None:
    do = "ask" if "/dev/shm" in name else "drain"
    with played(tmp_path, clock, 1, do=do) as play:
        play.fleet.faults = {node: SHARED[name](n) for n, node in enumerate(NODES)}
        play.run(40)
        assert play.drained() == set()
        assert (play.asked("common"), play.asked("ask")) == (1, 0)


def test_a_node_with_a_fault_of_its_own_is_drained_and_comes_back_and_that_of_others_does_not(play: Filed) -> None:
    scheduler = play.schedulers["c1"]
    play.fleet.faults = {node: [("network_mounts", 14, 26)] for node in NODES}
    for node in ("n3", "n40", "n41"):  # n41: a person takes over; n7 was drained by a person
        play.fleet.faults[node].append(("gpu_count", 2, 28))
    scheduler.by_hand("n7", held=True, why="RMA 7")

    def each(minute: int) -> None:
        if minute == 20:
            scheduler.by_hand("n41", held=True, why=f"{scheduler.nodes()['n41'].why} RMA 41")
        if minute == 36:
            play.fleet.passed |= {node: play.fleet.now() for node in ("n3", "n7", "n40", "n41")}

    play.run(44, each)
    assert play.drained() == {"n3", "n40", "n41"}
    assert sorted(scheduler.calls()) == ["n3", "n40", "n41"]  # once each, by whichever service
    assert sorted(scheduler.calls("resume")) == ["n3", "n40"]
    assert play.held() == {"n7", "n41"}


def test_a_node_that_fails_again_within_a_day_stays_drained_and_a_person_is_asked(play: Filed) -> None:
    play.fleet.faults = {"n3": [("gpu_count", 2, 16), ("gpu_count", 60, 80)]}

    def each(minute: int) -> None:
        if minute in (24, 86):
            play.fleet.passed["n3"] = play.fleet.now()

    play.run(94, each)
    scheduler = play.schedulers["c1"]
    assert (scheduler.calls(), scheduler.calls("resume")) == (["n3", "n3"], ["n3"])
    assert scheduler.nodes()["n3"].why.startswith("pyrometer: again within a day: check gpu_count failed [")
    assert play.asked("ask_return") >= 1


def test_drains_of_the_scripts_count(play: Filed) -> None:
    """Three are drained by the scripts for what the policy sees on a fourth one, whose own script does not run."""
    begin = play.fleet.begin
    for node in ("n1", "n2", "n5"):
        play.schedulers["c1"].set(
            node, held=True, why="pyrometer: gpu_count: 7 of 8", claim=f"gpu_count@{begin + 300:.0f}:123"
        )
    play.fleet.faults = {"n3": [("gpu_count", 6, 60)]}
    play.run(24)
    assert play.drained() == set()
    assert play.asked("common") == len(play.stores)


def test_a_fault_that_spreads_slowly_takes_three_nodes_at_most(tmp_path: Path, clock: Time) -> None:
    with played(tmp_path, clock, 1) as play:
        play.fleet.faults = {node: [("hca_links", 2 + 4 * n, 120)] for n, node in enumerate(NODES[:12])}
        play.run(70)
        assert play.drained() == {"n0", "n1"}
        assert (play.asked("common"), play.asked("ask")) == (1, 0)


@pytest.mark.parametrize("affected", [1, 3])
def test_clusters_of_three_nodes_have_one_brake(tmp_path: Path, clock: Time, affected: int) -> None:
    with played(tmp_path, clock, 1, clusters=21) as play:
        play.fleet.faults = {node: [("network_mounts", 2, 60)] for n, node in enumerate(NODES) if n % 3 < affected}
        play.run(20)
        assert play.drained() == set()
        assert play.asked("common") == 1


def test_the_word_stops_both_services_at_once(play: Filed) -> None:
    play.fleet.faults = {"n3": [("gpu_count", 2, 90)]}
    scheduler = play.schedulers["c1"]
    scheduler.stop("n60", on=True)
    play.run(20)
    assert play.drained() == set()
    assert {worker.held["c1", "stopped"] for worker in play.services} == {1}
    scheduler.stop("n60", on=False)
    play.run(2)
    assert scheduler.calls() == ["n3"]


def test_a_service_with_a_clock_of_its_own_doubles_no_limit(play: Filed) -> None:
    play.fleet.faults = {f"n{n}": [("gpu_count", 20 * n, 200)] for n in range(1, 9)}
    for worker in play.services:
        worker.executor.policy = replace(worker.executor.policy, limits=Limits(2, 50.0))
    play.run(70)
    assert len(play.drained()) == 2
    play.run(60)
    assert len(play.drained()) == 4


def test_a_stranger_moves_nothing_by_an_old_button(tmp_path: Path, clock: Time) -> None:
    with played(tmp_path, clock, 1, do="ask") as play:
        play.fleet.faults = {"n3": [("gpu_count", 5, 30)]}
        scheduler, worker = play.schedulers["c1"], play.services[0]
        play.run(20)
        with play.stores[0].snapshot() as tx:
            (asked,) = tx.actions.in_state("asked")
        clock.advance(30 * MINUTE)  # it has healed, and nobody has looked since
        assert worker.confirm(asked.id, "bob") == "Nothing was done: check gpu_count is over."
        assert "no longer applies" in worker.confirm(asked.id, "bob")
        assert scheduler.calls() == []
