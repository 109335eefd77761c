"""A scheduler whose truth is a file, so that it outlives the service; and what a worker needs around it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyrometer_alerting.incidents.storage.store import Store
from pyrometer_alerting.policy.rules import Back, Limits, Policy, Rule, SlurmSettings
from pyrometer_alerting.policy.schedulers import Claim, NodeState, RefusedError, SchedulerError, refuse_change
from pyrometer_alerting.policy.worker import PolicyWorker
from pyrometer_kit.clock import Clock, SystemClock
from pyrometer_kit.prometheus import Series

CLUSTER = "c1"
RULE = Rule("check", "hca_links", 300.0, "drain")


class FileScheduler:
    """Nodes of one partition; `calls` are kept in the file, too. It refuses what real schedulers refuse."""

    name = "Fake"

    def __init__(self, path: Path, count: int = 0, names: Sequence[str] = ()) -> None:
        self._path = path
        self.silent = self.refuses = self.does_nothing = False
        self.point: Callable[[], None] = lambda: None
        if count or names:
            blank = {"held": False, "why": "", "mark": "", "claim": "", "back": 0.0, "stops": False}
            named = names or [f"n{n}" for n in range(count)]
            self._write({"nodes": {node: {**blank, "pools": ["all"]} for node in named}, "calls": []})

    def nodes(self) -> Mapping[str, NodeState]:
        if self.silent:
            raise SchedulerError("it does not answer")
        return {
            name: NodeState(
                name, not one["held"], one["held"], tuple(one["pools"]), one["why"], one["mark"],
                Claim.read(one["claim"]), one["back"], one["stops"],
            )
            for name, one in self.read()["nodes"].items()
        }  # fmt: skip

    def drain(self, node: str, reason: str, mark: str, claim: Claim) -> None:
        why = f"{reason} [{mark}]"
        changes = {"held": True, "why": why, "mark": mark, "claim": claim.of_reason(why)}
        self._change("drain", node, mark, changes, None)

    def resume(self, node: str, mark: str, why: str, returned_at: float = 0.0) -> None:
        changes = {"held": False, "why": "", "mark": mark, "claim": "", "back": returned_at}
        self._change("resume", node, mark, changes, why)

    def stop(self, node: str, *, on: bool) -> None:
        self.set(node, stops=on)

    def by_hand(self, node: str, *, held: bool, why: str = "") -> None:
        """As a person does it: the mark stays, as Slurm's comment does."""
        self.set(node, held=held, why=why)

    def set(self, node: str, **values: object) -> None:
        truth = self.read()
        truth["nodes"][node] |= values
        self._write(truth)

    def calls(self, kind: str = "drain") -> list[str]:
        return [node for each, node, _mark in self.read()["calls"] if each == kind]

    def read(self) -> dict[str, dict[str, Any]]:
        truth: dict[str, dict[str, Any]] = json.loads(self._path.read_text())
        return truth

    def _change(self, kind: str, node: str, mark: str, changes: dict[str, object], why: str | None) -> None:
        self.point()
        if self.silent:
            raise SchedulerError("it does not answer")
        if self.refuses:
            raise RefusedError("not permitted")
        refuse_change(self.nodes()[node], why)
        truth = self.read()
        truth["calls"].append([kind, node, mark])
        truth["nodes"][node] |= {} if self.does_nothing else changes
        self._write(truth)
        self.point()

    def _write(self, truth: object) -> None:
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps(truth))
        new.replace(self._path)


class Findings:
    """A Prometheus that knows failed checks and passed tests of nodes; a failing one has failed for an hour."""

    def __init__(self, failing: list[str], clock: Clock | None = None) -> None:
        self.failing, self.passed = failing, dict[str, float]()
        self.since: dict[str, float] = {}
        self.failure: Exception | None = None
        self.clock = clock or SystemClock()

    def now(self) -> float:
        self._fail()
        return self.clock.wall()

    def instant(self, query: str, at: float) -> list[Series]:
        self._fail()
        if "min_over_time(pyrometer_check_ok" in query or "group by (check)" in query:
            return [self._one(at, 0.0, node=node, check="hca_links") for node in self.failing]
        if "severity=" in query or "ALERTS" in query:
            return []
        node = query.partition('node="')[2].partition('"')[0]
        if "active_test_timestamp" in query:
            return [self._one(at, self.passed[node], test="nccl")] if node in self.passed else []
        if "active_test_ok" in query:
            return [self._one(at, 1.0, test="nccl")] if node in self.passed else []
        if "reason_info" in query:
            return []
        value = at if "last_run" in query else float(node not in self.failing)
        return [self._one(at, value, node=node, check="hca_links")]

    def range(self, query: str, start: float, end: float, step: float) -> list[Series]:
        self._fail()
        assert "pyrometer_check_last_run_timestamp_seconds" in query
        return [self._looks(node, start, end, step) for node in self.failing]

    def _looks(self, node: str, start: float, end: float, step: float) -> Series:
        """Return the time of the newest look at each step, negative if it passed: one each five minutes."""
        since = self.since.get(node, 0.0)
        times = [start + step * n for n in range(round((end - start) / step) + 1)]
        points = tuple((at, (1 if at >= since else -1) * (at - at % 300)) for at in times)
        return Series({"cluster": CLUSTER, "node": node, "check": "hca_links"}, points)

    def _fail(self) -> None:
        if self.failure is not None:
            raise self.failure

    def _one(self, at: float, value: float, **labels: str) -> Series:
        return Series({"cluster": CLUSTER, **labels}, ((at, value),))


def policy(*, mode: str = "on", limits: Limits | None = None, do: str = "drain", back: Back | None = None) -> Policy:
    rule = Rule(RULE.finding, RULE.pattern, RULE.seconds, do)
    return Policy(mode, limits or Limits(), {CLUSTER: SlurmSettings()}, (rule,), None, back or Back())


def worker_of(
    store: Store, scheduler: FileScheduler, prometheus: Findings | None, clock: Clock, chosen: Policy
) -> PolicyWorker:
    if isinstance(prometheus, Findings):
        prometheus.clock = clock
    worker = PolicyWorker(store, prometheus, clock=clock, page_url="http://p", changed=lambda: None, has_buttons=True)
    worker.executor.policy = chosen
    worker.executor.schedulers = {CLUSTER: scheduler}
    return worker


def states(store: Store) -> list[tuple[str, str, str]]:
    with store.snapshot() as tx:
        return [(each.kind, each.node, each.state) for each in reversed(tx.actions.newest())]


def posted(store: Store) -> str:
    with store.snapshot() as tx:
        return "\n".join(each.body or "" for each in tx.outbox.due())
