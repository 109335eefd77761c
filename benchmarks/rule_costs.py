"""Measure every rule group of a Prometheus: wall time under load, and CPU time with all else at rest.

Seconds of the clock are Prometheus' own figure for each evaluation. Then scrapes and rules are taken away and each rule
is asked once more at the last moment, several times: what the process takes at least of the CPU for that, and by the
clock (*alone*), says which rule it is, whatever else the machine does.
"""

from __future__ import annotations

import math
import time
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from stores import Store

from pyrometer_kit.http_client import get_json
from pyrometer_simulator.http_call import call


@dataclass(frozen=True)
class Group:
    """A rule group: number of evaluations, their median and longest in seconds; of one alone, its CPU and its clock."""

    name: str
    interval: float
    evaluations: int
    median: float
    longest: float
    cpu: float
    alone: float


def measured(store: Store, window: str, times: int) -> list[Group]:
    """Return all groups: first by wall time, then, with all else at rest, by CPU time."""
    walls = {what: _by_group(store, query.format(window=window)) for what, query in _WALLS.items()}
    at = time.time()
    rest(store)
    costs = {name: [cost for _, cost in rules] for name, rules in rule_costs(store, at, times).items()}
    return [
        Group(
            name,
            interval,
            round(walls["evaluations"].get(name, 0)),
            walls["median"][name],
            walls["longest"][name],
            sum(cost.cpu for cost in costs[name]),
            sum(cost.clock for cost in costs[name]),
        )
        for name, interval in walls["interval"].items()
    ]


_LAST = "prometheus_rule_group_last_duration_seconds[{window}]"
_WALLS = {
    "interval": "prometheus_rule_group_interval_seconds",
    "evaluations": "increase(prometheus_rule_group_iterations_total[{window}])",
    "median": f"quantile_over_time(0.5, {_LAST})",
    "longest": f"max_over_time({_LAST})",
}


def _by_group(store: Store, query: str) -> dict[str, float]:
    found = get_json(f"{store.url}/api/v1/query?query={urllib.parse.quote(query)}", seconds=60)["data"]["result"]
    return {each["metric"]["rule_group"].rpartition(";")[2]: float(each["value"][1]) for each in found}


def rest(store: Store) -> None:
    """Stop all scraping and evaluation."""
    (store.folder / "prometheus.yaml").write_text("global: {}\n")
    assert call(f"{store.url}/-/reload", method="POST", seconds=60).status == 200


@dataclass(frozen=True)
class Cost:
    """Seconds that a query takes at best: of the CPU, and by the clock."""

    cpu: float
    clock: float

    def least(self, other: Cost) -> Cost:
        """Return the lesser of both, CPU and clock each on its own."""
        return Cost(min(self.cpu, other.cpu), min(self.clock, other.clock))


def rule_costs(store: Store, at: float, times: int) -> dict[str, list[tuple[str, Cost]]]:
    """Return every rule's cost by group, the least of so many queries.

    All rules are queried once before any is queried again: garbage collection takes seconds and counts for the query
    that it interrupts.
    """
    groups = list(groups_in(store.folder / "rules"))
    exprs = [rule["expr"] for group in groups for rule in group["rules"]]
    least = dict.fromkeys(exprs, Cost(math.inf, math.inf))
    for expr in exprs * times:
        least[expr] = least[expr].least(_cost(store, expr, at))
    return {
        group["name"]: [(rule.get("record") or rule["alert"], least[rule["expr"]]) for rule in group["rules"]]
        for group in groups
    }


def groups_in(folder: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(folder.glob("*.rules.yaml")):
        yield from yaml.safe_load(path.read_text())["groups"]


def _cost(store: Store, expr: str, at: float) -> Cost:
    """Wrap a query in count(), so that its answer's text costs nothing."""
    asked = urllib.parse.urlencode({"query": f"count({expr})", "time": at}).encode()
    before, begins = _cpu(store), time.perf_counter()
    assert call(f"{store.url}/api/v1/query", asked, seconds=120).status == 200
    clock = time.perf_counter() - begins
    return Cost(_cpu(store) - before, clock)


def _cpu(store: Store) -> float:
    """Return the process's CPU time to the microsecond: its clock ticks are 10 ms."""
    (pid,) = store.pids.values()
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9
