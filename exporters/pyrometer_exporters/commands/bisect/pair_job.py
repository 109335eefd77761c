"""One failed group, in which one pair of hosts is probably bad: the probability of each pair, and what to test next.

Each group that fails becomes a job of its own, with the pairs inside it: it has a bad one whatever is elsewhere. Should
it have been a false alarm, the job before continues.
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from pyrometer_exporters.commands.bisect.belief import Noise, Outcome
from pyrometer_exporters.commands.bisect.pairs import Pair

Group = tuple[str, ...]

FALSE_ALARM: Final = 0.9
"""From here on that the failed group was a false alarm, its job ends: a test of all hosts would show a mistake."""
LIKELY: Final = 0.8
"""A pair of this probability is tested alone."""
# Another bad pair, of which this job knows nothing, may fail a group of it.
OTHER_PAIRS: Final = 1e-3
NEGLIGIBLE: Final = 1e-7
# With more pairs than this one random half is as good as the best of several, and the search takes seconds.
MANY_PAIRS: Final = 20_000
TRIES: Final = 6
SHARES: Final = (0.4, 0.25, 0.12, 0.06, 0.03, 0.01)
"""The least probability in each group of a round, as tried."""


class PairJob:
    """The pairs that may be the reason for one failed group, by weight; ``nothing`` is that of a false alarm."""

    def __init__(self, weights: Mapping[Pair, float], nothing: float, noise: Noise) -> None:
        total = math.fsum(weights.values()) or 1.0
        self.weights = {pair: weight / total * (1 - nothing) for pair, weight in weights.items()}
        self.nothing = nothing if weights else 1.0
        self._noise = noise
        self._alarm = min(0.5, noise.false_alarm + OTHER_PAIRS)
        self.alone: Counter[Pair] = Counter()
        """How often pairs have failed without other candidates."""
        self.before: PairJob | None = None
        self._since: list[frozenset[str]] = []  # groups that passed since ``before`` was left

    @property
    def hosts(self) -> set[str]:
        """Return the hosts of all candidates."""
        return {host for pair in self.weights for host in pair}

    def best(self) -> tuple[Pair, float]:
        """Return the most probable pair, with its probability."""
        return max(self.weights.items(), key=lambda item: item[1])

    def concerns(self, group: Collection[str]) -> bool:
        """Return whether a candidate is in the group."""
        return any(first in group and second in group for first, second in self.weights)

    def learn(self, tests: Sequence[Outcome]) -> list[PairJob]:
        """Take in the tests of a round that concern this job; return the jobs that go on instead of it."""
        passed = [frozenset(test.hosts) for test in tests if test.passed]
        for group in passed:
            self._clear(group)
        self._normalize()
        jobs = []
        failed = [frozenset(test.hosts) for test in tests if not test.passed]
        for group in failed:
            weights_inside = {pair: self.weights[pair] for pair in self._inside(group)}
            real = math.fsum(weights_inside.values())
            wrong = self._alarm * max(0.0, 1 - real)
            job = PairJob(weights_inside, wrong / (wrong + (1 - self._noise.missed) * real), self._noise)
            job.alone.update(self.alone)
            if len(weights_inside) == 1:
                job.alone.update(weights_inside.keys())  # once each: Counter adds the weights of a mapping
            # If the group was a false alarm, the search goes on where it was; several of them are hardly all wrong.
            job.before = self if len(failed) == 1 and real < 1 - NEGLIGIBLE else None
            jobs.append(job)
        if failed:
            return jobs
        if self.before is not None:
            self._since += passed
            if self.nothing >= FALSE_ALARM:
                return [self.before.continued(self._since)]
        return [self]

    def continued(self, passed: Sequence[frozenset[str]]) -> PairJob:
        """Return this job with what was learned since it was left for a group that was a false alarm."""
        for group in passed:
            self._clear(group)
        self._since += passed
        self._normalize()
        return self

    def _inside(self, group: Collection[str]) -> list[Pair]:
        return [pair for pair in self.weights if pair[0] in group and pair[1] in group]

    def _clear(self, group: Collection[str]) -> None:
        factor = self._noise.missed / (1 - self._alarm)
        for pair in self._inside(group):
            self.weights[pair] *= factor

    def _normalize(self) -> None:
        total = math.fsum(self.weights.values()) + self.nothing
        self.nothing /= total
        self.weights = {pair: weight / total for pair, weight in self.weights.items() if weight > NEGLIGIBLE * total}

    def plan(self, chance: random.Random, free: Collection[str]) -> list[Group]:
        """Return disjoint groups of free hosts, from whose results most is learned."""
        weights = {pair: w for pair, w in self.weights.items() if pair[0] in free and pair[1] in free}
        if not weights:
            return []
        best, probability = max(weights.items(), key=lambda item: item[1])
        if probability >= LIKELY:
            return [tuple(sorted(best))]
        hosts = sorted({host for pair in weights for host in pair})
        if len(weights) > MANY_PAIRS:
            return _halves(hosts, chance)
        plans = [_halves(hosts, chance) for _ in range(TRIES)]
        partners = _partners(weights)
        total = math.fsum(weights.values())
        plans += [_packed(partners, share * total, chance) for share in SHARES]
        return max((plan for plan in plans if plan), key=lambda plan: self._worth(weights, plan))

    def _worth(self, weights: Mapping[Pair, float], plan: Sequence[Group]) -> float:
        """Return the bits that a round gives if there is one bad pair, less those that false alarms take."""
        place = {host: number for number, group in enumerate(plan) for host in group}
        masses = [0.0] * len(plan)
        for (first, second), weight in weights.items():
            at = place.get(first)
            if at is not None and at == place.get(second):
                masses[at] += weight
        rest = max(0.0, 1 - math.fsum(masses))
        bits = -math.fsum(p * math.log2(p) for p in (*masses, rest) if p > 0)
        return bits - len(plan) * _entropy(self._noise.false_alarm)


def _halves(hosts: Sequence[str], chance: random.Random) -> list[Group]:
    order = chance.sample(hosts, len(hosts))
    middle = (len(order) + 1) // 2
    return [tuple(sorted(half)) for half in (order[:middle], order[middle:]) if len(half) > 1]


def _partners(weights: Mapping[Pair, float]) -> dict[str, dict[str, float]]:
    partners: dict[str, dict[str, float]] = defaultdict(dict)
    for (first, second), weight in weights.items():
        partners[first][second] = partners[second][first] = weight
    return partners


def _packed(partners: Mapping[str, Mapping[str, float]], enough: float, chance: random.Random) -> list[Group]:
    """Return groups that grow by the host with the most weight to them until they have enough."""
    marginal = {host: math.fsum(others.values()) for host, others in partners.items()}
    order = sorted(chance.sample(sorted(marginal), len(marginal)), key=lambda host: -marginal[host])
    used: set[str] = set()
    groups: list[Group] = []
    for start in order:
        if start in used:
            continue
        group, mass = [start], 0.0
        used.add(start)
        gains = {host: weight for host, weight in partners[start].items() if host not in used}
        while gains and mass < enough:
            host = max(gains, key=lambda candidate: (gains[candidate], candidate))
            mass += gains.pop(host)
            group.append(host)
            used.add(host)
            for other, weight in partners[host].items():
                if other not in used:
                    gains[other] = gains.get(other, 0.0) + weight
        if len(group) > 1:
            groups.append(tuple(sorted(group)))
    return groups


def _entropy(p: float) -> float:
    return -p * math.log2(p) - (1 - p) * math.log2(1 - p)


def without(group: Iterable[str], pairs: Iterable[Pair]) -> Group:
    """Return the group with one host less of each of these pairs that is in it."""
    left = set(group)
    for first, second in pairs:
        if first in left and second in left:
            left.discard(second)
    return tuple(sorted(left))
