"""Measure how often pyrometer-bisect is right on simulated clusters of 512 hosts, and in how many rounds.

python benchmarks/bisect_rounds.py                # the table, as in docs/bisect.md: a quarter of an hour
python benchmarks/bisect_rounds.py --write        # and into that page
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path

from harness import replace_between_marks

from pyrometer_exporters.commands.bisect.belief import Noise
from pyrometer_exporters.commands.bisect.search import Settings
from pyrometer_simulator.bad_cluster import BadCluster

HOSTS = 512
RUNS = 100
# A search for pairs takes a second or more of computing, one for hosts a few hundredths.
RUNS_WITH_PAIRS = 20
QUIET, NOISY = Noise(1e-6, 1e-6), Noise()
PAGE = Path(__file__).parents[1] / "docs" / "bisect.md"
BEGIN, END = "<!-- begin generated -->\n", "<!-- end generated -->\n"
CASES = (
    *(("pairs", hosts, 0, 0) for hosts in (1, 2, 3, 4, 5, 6)),
    *(("grid", hosts, 0, 0) for hosts in (1, 6)),
    ("halve", 1, 0, 0),
    *(("pairs", 0, pairs, 0) for pairs in (0, 1, 2, 3, 6)),
    ("pairs", 0, 0, 1),
    ("pairs", 3, 1, 1),
)


def entropy(p: float) -> float:
    return 0.0 if p in (0, 1) else -p * math.log2(p) - (1 - p) * math.log2(1 - p)


def bits_of_round(chance_bad: float, groups: float, noise: Noise) -> float:
    fails = chance_bad * (1 - noise.missed) + (1 - chance_bad) * noise.false_alarm
    known = chance_bad * entropy(noise.missed) + (1 - chance_bad) * entropy(noise.false_alarm)
    return groups * (entropy(fails) - known)


def limit(hosts: int, pairs: int, switches: int, noise: Noise) -> int:
    """Return the rounds that no method can do without: the bits of the answer over those of the best possible round."""
    rounds = 0.0
    if hosts:
        best = max(bits_of_round(1 - (1 - g / HOSTS) ** hosts, HOSTS / g, noise) for g in range(2, HOSTS + 1))
        rounds += math.log2(math.comb(HOSTS, hosts)) / best
    if pairs:
        best = max(bits_of_round(1 - (1 - 1 / groups**2) ** pairs, groups, noise) for groups in range(1, 257))
        rounds += math.log2(math.comb(math.comb(HOSTS, 2), pairs)) / best
    if switches:
        rounds += math.log2(HOSTS // 32) / (HOSTS // 2)
    return math.ceil(rounds)


def row(method: str, hosts: int, pairs: int, switches: int, noise: Noise) -> str:
    runs = RUNS_WITH_PAIRS if pairs else RUNS
    clusters = [
        BadCluster.drawn(HOSTS, seed, hosts=hosts, pairs=pairs, switches=switches, noise=noise)
        for seed in range(1000, 1000 + runs)
    ]
    right = 0
    for cluster in clusters:
        topology = cluster.switches if switches else {}
        right += cluster.is_right(cluster.search(Settings(cluster.hosts, topology, method, noise=noise)))
    rounds = sorted(cluster.rounds for cluster in clusters)
    tests = sum(cluster.tests for cluster in clusters) / runs
    found = ", ".join(
        f"{n} {name}{'s' * (n > 1)}" for n, name in ((hosts, "host"), (pairs, "pair"), (switches, "switch")) if n
    )
    least = limit(hosts, pairs, switches, noise)
    return (
        f"| {found or 'nothing'} | {method} | {'no' if noise is QUIET else 'yes'} | {right} of {runs} "
        f"| {sum(rounds) / runs:.1f} | {rounds[-1 - runs // 20]} | {least} | {tests:.0f} |"
    )


def table() -> Iterator[str]:
    yield f"Clusters of {HOSTS} hosts. Noise: 1 % of good groups fail, 2 % of bad ones pass."
    yield ""
    yield "| bad | method | noise | right | rounds, mean | rounds, 95 % | limit | tests |"
    yield "|---|---|---|---:|---:|---:|---:|---:|"
    for case in CASES:
        for noise in (QUIET, NOISY):
            yield row(*case, noise)


def main() -> None:
    lines = []
    for line in table():
        print(line, flush=True)
        lines.append(line)
    if "--write" in sys.argv:
        replace_between_marks(PAGE, BEGIN, END, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
