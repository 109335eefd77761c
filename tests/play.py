"""64 nodes for plays of the policy: a Prometheus with their checks, and two services that look every two minutes.

The tests bring the schedulers: files, Slurm's commands with its scripts, or a Kubernetes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pyrometer_alerting.incidents.storage.store import Store
from pyrometer_alerting.policy.rules import Back, Limits, Policy, Rule, SlurmSettings
from pyrometer_alerting.policy.schedulers import Scheduler
from pyrometer_alerting.policy.worker import PolicyWorker
from pyrometer_kit.prometheus import Series

NODES = [f"n{n}" for n in range(64)]
CHECKS = ("gpu_count", "hca_links", "network_mounts", "shared_memory")
EVERY = 300  # the checks' interval
MINUTE = 60.0
Fault = tuple[str, float, float]
"""A check, and from which minute to which it fails."""


@dataclass
class Time:
    """A manual clock: `advance` alone moves it."""

    seconds: float = 1_795_950_000.0

    def wall(self) -> float:
        return self.seconds

    def monotonic(self) -> float:
        return self.seconds

    def advance(self, seconds: float) -> None:
        self.seconds += seconds


@dataclass
class Fleet:
    """A Prometheus with the checks of all nodes, each at its own second of five minutes; `faults` are those by node."""

    clock: Time
    begin: float
    faults: dict[str, list[Fault]] = field(default_factory=dict)
    passed: dict[str, float] = field(default_factory=dict)
    clusters: Callable[[str], str] = lambda _node: "c1"
    learned: frozenset[str] = frozenset()
    """Nodes that fail only by what was learned of them."""
    unseen: frozenset[str] = frozenset()
    """Nodes of which no check has a result."""

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
        if "reason_info" in query:
            known = [self._series(*place).labels for place in places if place[0] in self.learned]
            return [Series({**labels, "severity": "learned"}, ((at, 1.0),)) for labels in known]
        assert "ALERTS" in query
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
            if node not in self.unseen and re.fullmatch(matchers.get("node", ".*"), node):
                yield from ((node, check) for check in checks)

    def _series(self, node: str, check: str, *points: tuple[float, float]) -> Series:
        return Series({"cluster": self.clusters(node), "node": node, "check": check}, points)


@dataclass
class Skewed:
    """A host whose clock is ahead by so many seconds."""

    clock: Time
    seconds: float

    def wall(self) -> float:
        return self.clock.wall() + self.seconds

    def monotonic(self) -> float:
        return self.clock.monotonic()


@dataclass
class Play:
    fleet: Fleet
    schedulers: Mapping[str, Scheduler]
    services: list[PolicyWorker]
    stores: list[Store]

    def run(self, minutes: int, each: Callable[[int], None] = lambda _minute: None) -> None:
        for minute in range(0, minutes, 2):
            each(minute)
            for worker in self.services:
                worker.step()
                assert worker.trouble == ()
            self.fleet.clock.advance(2 * MINUTE)

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
def playing(
    folder: Path, fleet: Fleet, schedulers: Mapping[str, Scheduler], *, databases: int = 1, do: str = "drain"
) -> Iterator[Play]:
    """Play two services, on one database or on two; the second one's clock is ahead by two hours."""
    stores = [Store(folder / f"store{n}") for n in range(databases)]
    rules = (Rule("check", ".+", 300.0, do),)
    known = {name: SlurmSettings() for name in schedulers}
    policy = Policy("on", Limits(100, 50.0), known, rules, None, Back(("nccl",), "return"))
    workers = []
    for n in range(2):
        clock = Skewed(fleet.clock, 7200.0 * n)
        worker = PolicyWorker(stores[n % databases], fleet, clock=clock, page_url="", changed=lambda: None)
        worker.executor.policy, worker.executor.schedulers = policy, schedulers
        workers.append(worker)
    try:
        yield Play(fleet, schedulers, workers, stores)
    finally:
        for store in stores:
            store.close()
