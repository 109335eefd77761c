"""Search for pairs of good hosts that are bad together: a cable plan, a routing table, one link of a spine.

All hosts are tested at once, which would show any bad pair. If that fails, one job looks for the pair, by halves at
first; where several groups of a round fail there are several pairs, and jobs run side by side. Hosts that no job needs
are tested meanwhile for more of them. At the end all hosts are tested once more.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Final

from pyrometer_exporters.commands.bisect.belief import Noise, Outcome
from pyrometer_exporters.commands.bisect.pair_job import FALSE_ALARM, PairJob, without
from pyrometer_exporters.commands.bisect.pairs import Pair, PairCandidates
from pyrometer_exporters.commands.bisect.plan import Group

MOST_GROUPS: Final = 16
SURE: Final = 0.998
"""From here on a pair that failed without other candidates is called bad."""
BACKGROUND: Final = 0.1
"""The probability that a group of hosts that no job needs has a bad pair, about: it is kept there by their size."""
# One wrong result in a thousand is the least for which pairs with one passed test are kept as candidates.
NOISY: Final = 1e-3


class PairSearch:
    """Plans rounds of groups of hosts that are good each on their own."""

    def __init__(self, hosts: Sequence[str], noise: Noise, risk: float, size: int = 2) -> None:
        self._hosts, self._noise, self._size = tuple(hosts), noise, size
        self._passed = math.log(noise.missed) - math.log1p(-noise.false_alarm)
        self._failed = math.log1p(-noise.missed) - math.log(noise.false_alarm)
        self._enough = math.log(risk / 2)
        self._open = PairCandidates(hosts)
        self._jobs: list[PairJob] = []
        self._groups = 2
        self._whole = 0  # tests of all hosts at once so far
        self._searching = self._several = False
        self._variants = [0.0, 0.0]
        """Log odds that there is a bad pair that was not found: without the one and the other host of known ones."""
        self.bad: dict[Pair, float] = {}
        """Pairs that were found, with the probability that they are bad."""

    @property
    def _more(self) -> float:
        return sum(self._variants)

    @property
    def risk(self) -> float:
        """Return the probability that a pair is missing or wrong."""
        return 1 / (1 + math.exp(-max(-30.0, min(30.0, self._more)))) + math.fsum(1 - p for p in self.bad.values())

    def learn(self, tests: Sequence[Outcome]) -> None:
        """Clear the pairs that earlier tests have shown to be good."""
        for test in tests:
            if test.passed:
                self._open.passed(test.hosts)

    def plan(self, chance: random.Random) -> list[Group]:
        """Return the next round; none once all is found."""
        if not self._searching:
            seen = all(odds < 0 for odds in self._variants[: 1 + bool(self.bad)])
            return [] if seen and self._more <= self._enough else self._everyone()
        free = set(self._hosts)
        groups: list[Group] = []
        # Those with few pairs left need few hosts, and are over soonest.
        for job in sorted(self._jobs, key=lambda job: len(job.weights)):
            for group in job.plan(chance, free):
                clean = without(group, self.bad)
                if len(clean) > 1:
                    groups.append(clean)
                    free -= set(clean)
        needed = {host for job in self._jobs for host in job.hosts}
        if self._several:
            groups += self._background(sorted(free - needed), chance)
            free -= {host for group in groups for host in group}
        return [self._filled(group, free) for group in groups] or self._everyone()

    def record(self, tests: Sequence[Outcome]) -> None:
        """Draw conclusions from a round that was planned here."""
        self.learn(tests)
        if not self._searching:
            self._record_everyone(tests)
            return
        found = len(self.bad)
        left = list(tests)
        jobs: list[PairJob] = []
        for job in self._jobs:
            own = [test for test in left if job.concerns(frozenset(test.hosts))]
            left = [test for test in left if test not in own]
            after = job.learn(own)
            self._several |= len(after) > 1
            jobs += after
        jobs += self._record_background(left)
        self._jobs = [job for job in jobs if not self._is_over(job)]
        self._several |= bool(self.bad) and len(self.bad) > found > 0
        if not self._jobs:
            self._searching = False  # ask all hosts again whether there is another one
            self._variants = [0.0, 0.0]

    def _is_over(self, job: PairJob) -> bool:
        if job.nothing >= FALSE_ALARM or not job.weights:
            return True
        pair, probability = job.best()
        times = 2 if self._noise.false_alarm >= NOISY else 1
        if probability < SURE or job.alone[pair] < times:
            return False
        self.bad[pair] = probability
        self._open.forget(pair)
        return True

    def _everyone(self) -> list[Group]:
        """Return all hosts but for one host of each bad pair, in turn the one and the other; none if few are left."""
        out = {pair[self._whole % 2] for pair in self.bad}
        left = tuple(host for host in self._hosts if host not in out)
        return [left] if len(left) >= max(2, self._size) else []

    def _record_everyone(self, tests: Sequence[Outcome]) -> None:
        for test in tests:
            which = self._whole % 2 if self.bad else 0
            self._whole += 1
            self._variants[which] += self._passed if test.passed else self._failed
        if max(self._variants) >= 0.9 * self._failed:
            self._searching, self._several = True, bool(self.bad)
            self._groups = 2
            weights = self._candidates()
            if not weights:  # everything has passed three times: begin again
                self._open = PairCandidates(self._hosts)
                for pair in self.bad:
                    self._open.forget(pair)
                weights = self._candidates()
            alarm = self._noise.false_alarm
            self._jobs = [PairJob(weights, alarm / (alarm + BACKGROUND), self._noise)]

    def _candidates(self) -> dict[Pair, float]:
        """Return the pairs that no test has cleared; with noise, less probably, those that one or two have cleared."""
        missed = self._noise.missed
        weights: dict[Pair, float] = {}
        for level in range(3 if missed >= NOISY else 1):
            for pair in self._open.at(level):
                weights.setdefault(pair, missed**level)
        if not weights:
            weights = dict.fromkeys(self._open.at(1), 1.0)
        return weights

    def _background(self, free: Sequence[str], chance: random.Random) -> list[Group]:
        """Return groups of free hosts by chance, without a pair that is known to be bad."""
        order = chance.sample(free, len(free))
        groups = [without(order[start :: self._groups], self.bad) for start in range(self._groups)]
        return [group for group in groups if len(group) > 1 and self._open.has_inside(group)]

    def _record_background(self, tests: Sequence[Outcome]) -> list[PairJob]:
        failed = [test for test in tests if not test.passed]
        if tests and len(failed) == len(tests):  # smaller groups pass more often
            self._groups = min(MOST_GROUPS, self._groups + 1)
        elif not failed:
            self._groups = max(2, self._groups - 1)
        alarm = self._noise.false_alarm
        return [
            PairJob(dict.fromkeys(self._open.inside(test.hosts), 1.0), alarm / (alarm + BACKGROUND), self._noise)
            for test in failed
        ]

    def _filled(self, group: Group, free: set[str]) -> Group:
        """Return a group that is large enough for the command: more hosts, with which its own have run well."""
        missing = self._size - len(group)
        if missing <= 0:
            return group
        members = [*group]
        for _ in range(missing):
            if not free:
                break
            best = min(free, key=lambda host: (self._open.doubts(host, members), host))
            members.append(best)
            free.discard(best)
        return tuple(sorted(members))
