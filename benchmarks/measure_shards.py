"""Ask a Prometheus at rest for every rule group whole and in shards: are the answers equal, and how long do they take.

Used by bench_scale.py. A group is split by racks of nodes where it can be, else by runs, as
`pyrometer-dashboards rules --shard` does.
"""

from __future__ import annotations

import json
import math
import time
import urllib.parse
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from pyrometer_dashboards.rule_shards import (
    Shards,
    best_way,
    by_patterns,
    by_racks,
    groups_of,
    restricted,
    why_whole,
)
from pyrometer_dashboards.rule_stages import NotSplitError
from pyrometer_simulator.http_call import call

Answer = dict[str, float]


@dataclass(frozen=True)
class Split:
    """Hold the seconds that a group takes, whole and in shards.

    Attributes:
        label: by which it is split.
        whole: of all its rules as they are.
        slowest: of the slowest shard.
        together: of all shards.
        values: how many were compared.
        differing: what is lost, there twice or of another value in shards.
        kept: of those of its rules that stay whole.
    """

    name: str
    label: str
    whole: float
    slowest: float
    together: float
    values: int
    differing: list[str]
    kept: float = 0.0


def ways(targets: Path, shards: int, runs: Sequence[str]) -> list[Shards]:
    """Return shards of whole racks, and one for each run."""
    racks: dict[str, set[str]] = {}
    for group in json.loads(targets.read_text()):
        racks.setdefault(group["labels"]["rack"], set()).add(group["labels"]["node"])
    return [by_racks(racks, shards), by_patterns("run", runs[:-1], apart=True)]


def measured(
    url: str, rules: Path, chosen: Sequence[Shards], asked: tuple[float, int], only: Collection[str] = ()
) -> Iterator[Split]:
    """Yield every group that can be split.

    Args:
        url: of a Prometheus.
        rules: the folder of the rule files.
        chosen: ways to split a group; the one that leaves the fewest rules whole.
        asked: the moment that is asked for, and the tries of each query, of which the shortest counts.
        only: names of groups; none is all.
    """
    texts = [path.read_text() for path in sorted(rules.glob("*.rules.yaml"))]
    for name, group in (each for text in texts for each in groups_of(text)):
        if only and name not in only:
            continue
        try:
            way = best_way(name, group, chosen)
        except NotSplitError:
            continue
        (parsed,) = yaml.safe_load("groups:\n" + group)["groups"]
        yield _measured(url, name, [rule["expr"] for rule in parsed["rules"]], way, asked)


def _measured(url: str, name: str, exprs: Sequence[str], way: Shards, asked: tuple[float, int]) -> Split:
    at, tries = asked
    differing, values, whole, kept = [], 0, 0.0, 0.0
    of_shards = [0.0] * len(way.matchers)
    for expr in exprs:
        seconds = _seconds(url, expr, at, tries)
        whole += seconds
        if why_whole(expr, way.label):
            kept += seconds
            continue
        answer = _answer(url, expr, at)
        values += len(answer)
        union: Answer = {}
        for number, matcher in enumerate(way.matchers):
            part = restricted(expr, way.label, matcher)
            found = _answer(url, part, at)
            differing += [f"twice: {series}" for series in union.keys() & found.keys()]
            union |= found
            of_shards[number] += _seconds(url, part, at, tries)
        differing += _differences(answer, union)
    return Split(name, way.label, whole, max(of_shards), sum(of_shards), values, differing, kept)


def _differences(one: Mapping[str, float], other: Mapping[str, float]) -> list[str]:
    lost = [f"lost: {series}" for series in one.keys() - other.keys()]
    more = [f"more: {series}" for series in other.keys() - one.keys()]
    wrong = [series for series in one.keys() & other.keys() if not _alike(one[series], other[series])]
    return [*lost, *more, *(f"other value: {series}" for series in wrong)]


def _alike(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-9) or (math.isnan(one) and math.isnan(other))


def _answer(url: str, expr: str, at: float) -> Answer:
    found = json.loads(_ask(url, expr, at))["data"]["result"]
    return {json.dumps(each["metric"], sort_keys=True): float(each["value"][1]) for each in found}


def _seconds(url: str, expr: str, at: float, tries: int) -> float:
    """Return the least of so many tries by the clock; count() keeps the answer's text small."""
    seconds = []
    for _ in range(tries):
        begins = time.perf_counter()
        _ask(url, f"count({expr}\n)", at)
        seconds.append(time.perf_counter() - begins)
    return min(seconds)


def _ask(url: str, expr: str, at: float) -> bytes:
    asked = urllib.parse.urlencode({"query": expr, "time": at}).encode()
    return call(f"{url}/api/v1/query", asked, seconds=300).body
