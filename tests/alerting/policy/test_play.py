"""64 nodes under the policy, two services at once: a shared fault drains none, one of a single node that one alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from alerting_fakes import FakeClock
from alerting_policy_fakes import FileScheduler

from pyrometer_alerting.incidents.storage.store import Store
from pyrometer_alerting.policy.rules import Back, Limits, Policy, Rule, SlurmSettings
from pyrometer_alerting.policy.worker import PolicyWorker
from pyrometer_kit.prometheus import Series

NODES = [f"n{n}" for n in range(64)]
CHECKS = ("gpu_count", "hca_links", "network_mounts", "shared_memory")
EVERY = 300  # the checks' interval
MINUTE = 60.0
Fault = tuple[str, float, float]
"""A check, and from which minute to which it fails."""


@dataclass
class Fleet:
    """A Prometheus with the checks of all nodes, each at its own second of five minutes; `faults` are those by node."""

    clock: FakeClock
    begin: float
    faults: dict[str, list[Fault]] = field(default_factory=dict)
    passed: dict[str, float] = field(default_factory=dict)
    clusters: Callable[[str], str] = lambda _node: "c1"

    def now(self) -> float:
        return self.clock.wall()

    def instant(self, query: str, at: float) -> list[Series]:
        if "group by (check)" in query:
            query += f"min_over_time [{EVERY}s]"
        if "min_over_time" in query:
            (back,) = re.findall(r"\[(\d+)s\]", query)
            times = [at - n for n in range(0, int(back), EVERY)]
            places = [p for p in self._places(query) if not all(self._look(*p, when)[1] for when in times)]
            return [self._series(*place, (at, 0.0)) for place in places]
        places = list(self._places(query))
        if "active_test" in query:
            value = self.passed if "timestamp" in query else dict.fromkeys(self.passed, 1.0)
            named = [node for node, check in places if check == CHECKS[0] and node in self.passed]
            labels = [{"cluster": self.clusters(node), "node": node, "test": "nccl"} for node in named]
            return [Series(names, ((at, value[names["node"]]),)) for names in labels]
        if "check_ok" in query or "last_run" in query:
            part = 1 if "check_ok" in query else 0
            return [self._series(*place, (at, float(self._look(*place, at)[part]))) for place in places]
        assert "reason_info" in query or "ALERTS" in query
        return []

    def range(self, query: str, start: float, end: float, step: float) -> list[Series]:
        times = [start + step * n for n in range(round((end - start) / step) + 1)]
        return [self._series(*place, *self._points(place, times)) for place in self._places(query)]

    def _points(self, place: tuple[str, str], times: list[float]) -> Iterator[tuple[float, float]]:
        for at in times:
            when, is_good = self._look(*place, at)
            yield at, -when if is_good else when

    def _look(self, node: str, check: str, at: float) -> tuple[float, bool]:
        """Return when the check was run last before `at`, and whether it passed."""
        phase = 37 * int(node[1:]) % EVERY
        when = at - (at - phase) % EVERY
        minute = (when - self.begin) / MINUTE
        faults = [(check == name, since <= minute < until) for name, since, until in self.faults.get(node, ())]
        return when, not any(is_it and is_now for is_it, is_now in faults)

    def _places(self, query: str) -> Iterator[tuple[str, str]]:
        matchers: dict[str, str] = dict(re.findall(r'(check|node)=~?"((?:[^"\\]|\\.)*)"', query))
        checks = [check for check in CHECKS if re.fullmatch(matchers.get("check", ".*"), check)]
        for node in NODES:
            if re.fullmatch(matchers.get("node", ".*"), node):
                yield from ((node, check) for check in checks)

    def _series(self, node: str, check: str, *points: tuple[float, float]) -> Series:
        return Series({"cluster": self.clusters(node), "node": node, "check": check}, points)


@dataclass
class Skewed:
    """A host whose clock is ahead by so many seconds."""

    clock: FakeClock
    seconds: float

    def wall(self) -> float:
        return self.clock.wall() + self.seconds

    def monotonic(self) -> float:
        return self.clock.monotonic()


@dataclass
class Play:
    fleet: Fleet
    schedulers: Mapping[str, FileScheduler]
    services: list[PolicyWorker]
    stores: list[Store]

    def run(self, minutes: int, each: Callable[[int], None] = lambda _minute: None) -> None:
        for minute in range(0, minutes, 2):
            each(minute)
            for worker in self.services:
                worker.step()
                assert worker.trouble == ()
            self.fleet.clock.advance(2 * MINUTE)

    def drained(self) -> set[str]:
        return {node for scheduler in self.schedulers.values() for node in scheduler.calls()}

    def held(self) -> set[str]:
        return {state.name for each in self.schedulers.values() for state in each.nodes().values() if state.held}

    def asked(self, kind: str) -> int:
        """Return how often a person was asked, or told: of this kind."""
        count = 0
        for store in self.stores:
            with store.snapshot() as tx:
                count += sum(action.kind == kind for action in tx.actions.newest(1000))
        return count


@contextmanager
def played(tmp_path: Path, clock: FakeClock, databases: int, clusters: int = 1, do: str = "drain") -> Iterator[Play]:
    size = len(NODES) // clusters
    names = [f"c{n}" for n in range(1, clusters + 1)]
    of = {node: names[min(n // size, clusters - 1)] for n, node in enumerate(NODES)}
    schedulers = {
        name: FileScheduler(tmp_path / name, names=[node for node in NODES if of[node] == name]) for name in names
    }
    fleet = Fleet(clock, clock.wall(), clusters=lambda node: of[node])
    stores = [Store(tmp_path / f"store{n}") for n in range(databases)]
    rules = (Rule("check", ".+", 300.0, do),)
    known = {name: SlurmSettings() for name in names}
    policy = Policy("on", Limits(100, 50.0), known, rules, None, Back(("nccl",), "return"))
    workers = []
    for n in range(2):
        own_clock = Skewed(clock, 7200.0 * n)
        worker = PolicyWorker(stores[n % databases], fleet, clock=own_clock, page_url="", changed=lambda: None)
        worker.executor.policy, worker.executor.schedulers = policy, schedulers
        workers.append(worker)
    try:
        yield Play(fleet, schedulers, workers, stores)
    finally:
        for store in stores:
            store.close()


@pytest.fixture(params=[1, 2], ids=["one database", "two databases"])
def play(tmp_path: Path, clock: FakeClock, request: pytest.FixtureRequest) -> Iterator[Play]:
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
def test_a_shared_fault_drains_nobody_and_asks_a_person_once(tmp_path: Path, clock: FakeClock, name: str) -> None:
    do = "ask" if "/dev/shm" in name else "drain"
    with played(tmp_path, clock, 1, do=do) as play:
        play.fleet.faults = {node: SHARED[name](n) for n, node in enumerate(NODES)}
        play.run(40)
        assert play.drained() == set()
        assert (play.asked("common"), play.asked("ask")) == (1, 0)


def test_a_node_with_a_fault_of_its_own_is_drained_and_comes_back_and_that_of_others_does_not(play: Play) -> None:
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


def test_a_node_that_fails_again_within_a_day_stays_drained_and_a_person_is_asked(play: Play) -> None:
    play.fleet.faults = {"n3": [("gpu_count", 2, 16), ("gpu_count", 60, 80)]}

    def each(minute: int) -> None:
        if minute in (24, 86):
            play.fleet.passed["n3"] = play.fleet.now()

    play.run(94, each)
    scheduler = play.schedulers["c1"]
    assert (scheduler.calls(), scheduler.calls("resume")) == (["n3", "n3"], ["n3"])
    assert scheduler.nodes()["n3"].why.startswith("pyrometer: again within a day: check gpu_count failed [")
    assert play.asked("ask_return") >= 1


def test_drains_of_the_scripts_count(play: Play) -> None:
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


@pytest.mark.parametrize("affected", [1, 3])
def test_clusters_of_three_nodes_have_one_brake(tmp_path: Path, clock: FakeClock, affected: int) -> None:
    with played(tmp_path, clock, 1, clusters=21) as play:
        play.fleet.faults = {node: [("network_mounts", 2, 60)] for n, node in enumerate(NODES) if n % 3 < affected}
        play.run(20)
        assert play.drained() == set()
        assert play.asked("common") == 1


def test_the_word_stops_both_services_at_once(play: Play) -> None:
    play.fleet.faults = {"n3": [("gpu_count", 2, 90)]}
    scheduler = play.schedulers["c1"]
    scheduler.stop("n60", on=True)
    play.run(20)
    assert play.drained() == set()
    assert {worker.held["c1", "stopped"] for worker in play.services} == {1}
    scheduler.stop("n60", on=False)
    play.run(2)
    assert scheduler.calls() == ["n3"]


def test_a_service_with_a_clock_of_its_own_doubles_no_limit(play: Play) -> None:
    play.fleet.faults = {f"n{n}": [("gpu_count", 20 * n, 200)] for n in range(1, 9)}
    for worker in play.services:
        worker.executor.policy = replace(worker.executor.policy, limits=Limits(2, 50.0))
    play.run(70)
    assert len(play.drained()) == 2
    play.run(60)
    assert len(play.drained()) == 4


def test_a_stranger_moves_nothing_by_an_old_button(tmp_path: Path, clock: FakeClock) -> None:
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
