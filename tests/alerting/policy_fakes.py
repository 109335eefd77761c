"""A scheduler whose truth is a file, so that it outlives the service; and what a worker needs around it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from pyrometer_alerting.incidents.storage.store import Store
from pyrometer_alerting.policy.rules import Back, Limits, Policy, Rule, SlurmSettings
from pyrometer_alerting.policy.schedulers import NodeState, RefusedError, SchedulerError
from pyrometer_alerting.policy.worker import PolicyWorker
from pyrometer_kit.clock import Clock
from pyrometer_kit.prometheus import Prometheus, Series

CLUSTER = "c1"
RULE = Rule("check", "hca_links", 300.0, "drain")


class FileScheduler:
    """Nodes of one or two partitions; `calls` are kept in the file, too."""

    name = "Fake"

    def __init__(
        self, path: Path, count: int = 0, pools: Callable[[int], tuple[str, ...]] = lambda _n: ("all",)
    ) -> None:
        self._path = path
        self.silent = self.refuses = False
        self.point: Callable[[], None] = lambda: None
        if count:
            nodes = {f"n{n}": {"held": False, "why": "", "mark": "", "pools": ["all"]} for n in range(count)}
            self._write({"nodes": nodes, "calls": []})

    def nodes(self) -> Mapping[str, NodeState]:
        if self.silent:
            raise SchedulerError("it does not answer")
        return {
            name: NodeState(name, not one["held"], one["held"], tuple(one["pools"]), one["why"], one["mark"])
            for name, one in self.read()["nodes"].items()
        }

    def drain(self, node: str, reason: str, mark: str) -> None:
        self._change("drain", node, mark, {"held": True, "why": f"{reason} [{mark}]", "mark": mark})

    def resume(self, node: str, mark: str) -> None:
        self._change("resume", node, mark, {"held": False, "why": "", "mark": mark})

    def by_hand(self, node: str, *, held: bool, why: str = "") -> None:
        """As a person does it: the mark stays, as Slurm's comment does."""
        truth = self.read()
        truth["nodes"][node] |= {"held": held, "why": why}
        self._write(truth)

    def calls(self, kind: str = "drain") -> list[str]:
        return [node for each, node, _mark in self.read()["calls"] if each == kind]

    def read(self) -> dict[str, dict[str, dict[str, object]]]:
        return json.loads(self._path.read_text())

    def _change(self, kind: str, node: str, mark: str, changes: dict[str, object]) -> None:
        self.point()
        if self.silent:
            raise SchedulerError("it does not answer")
        if self.refuses:
            raise RefusedError("not permitted")
        truth = self.read()
        truth["nodes"][node] |= changes
        truth["calls"].append([kind, node, mark])
        self._write(truth)
        self.point()

    def _write(self, truth: object) -> None:
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps(truth))
        new.replace(self._path)


class Findings:
    """A Prometheus that knows failed checks and passed tests of nodes."""

    def __init__(self, failing: list[str]) -> None:
        self.failing, self.passed = failing, dict[str, float]()
        self.failure: Exception | None = None

    def instant(self, query: str, at: float) -> list[Series]:
        if self.failure is not None:
            raise self.failure
        if query.startswith("max by (cluster, node, check)"):
            return [self._one(at, 0.0, node=node, check="hca_links") for node in self.failing]
        node = query.partition('node="')[2].partition('"')[0]
        if "active_test_timestamp" in query:
            return [self._one(at, self.passed[node], test="nccl")] if node in self.passed else []
        if "active_test_ok" in query:
            return [self._one(at, 1.0, test="nccl")] if node in self.passed else []
        return [self._one(at, float(node not in self.failing), node=node, check="hca_links")]

    def range(self, query: str, start: float, end: float, step: float) -> list[Series]:
        raise NotImplementedError

    def _one(self, at: float, value: float, **labels: str) -> Series:
        return Series({"cluster": CLUSTER, **labels}, ((at, value),))


def policy(*, mode: str = "on", limits: Limits | None = None, do: str = "drain", back: Back | None = None) -> Policy:
    rule = Rule(RULE.finding, RULE.pattern, RULE.seconds, do)
    return Policy(mode, limits or Limits(), {CLUSTER: SlurmSettings()}, (rule,), None, back or Back())


def worker_of(
    store: Store, scheduler: FileScheduler, prometheus: Prometheus | None, clock: Clock, chosen: Policy
) -> PolicyWorker:
    worker = PolicyWorker(store, prometheus, clock=clock, page_url="http://p", changed=lambda: None, has_buttons=True)
    worker.executor.policy = chosen
    worker.executor.schedulers = {CLUSTER: scheduler}
    return worker
