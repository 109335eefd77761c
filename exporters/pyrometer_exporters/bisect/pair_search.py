"""Search for pairs of good hosts that are bad together: a cable plan, a routing table, one link of a spine.

All hosts are tested at once, which would show any bad pair. If that fails, groups that pass clear pairs until each host
is left with few candidates; those are then tested two by two. At the end all hosts are tested once more.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Final

from pyrometer_exporters.bisect.belief import Noise, Outcome
from pyrometer_exporters.bisect.pairs import Pair, PairCandidates
from pyrometer_exporters.bisect.plan import Group

# From so few candidates per host on, testing them two by two takes fewer rounds than clearing more of them.
FEW_PARTNERS: Final = 4
MOST_GROUPS: Final = 8
SURE_LOG_ODDS: Final = 6.0
"""From here on a pair that failed alone is called bad: 99.8 %."""


class PairSearch:
    """Plans rounds of groups of hosts that are good each on their own."""

    def __init__(self, hosts: Sequence[str], noise: Noise, risk: float) -> None:
        self._hosts = tuple(hosts)
        self._passed = math.log(noise.missed) - math.log1p(-noise.false_alarm)
        self._failed = math.log1p(-noise.missed) - math.log(noise.false_alarm)
        self._enough = math.log(risk / 2)
        self._history: list[Outcome] = []
        self._any = PairCandidates(hosts)
        self._only: PairCandidates | None = PairCandidates(hosts)
        self._direct: dict[Pair, float] = {}
        self._groups = 2
        self._whole = 0  # tests of all hosts at once so far
        self._searching = False
        self._more = 0.0  # log odds that there is a bad pair that was not found
        self.bad: dict[Pair, float] = {}
        """Pairs that were found, with the probability that they are bad."""

    @property
    def risk(self) -> float:
        """Return the probability that a pair is missing or wrong."""
        return 1 / (1 + math.exp(-max(-30.0, min(30.0, self._more)))) + math.fsum(1 - p for p in self.bad.values())

    @property
    def _candidates(self) -> PairCandidates:
        """Return the candidates for the only bad pair while there can be such a one, else for one of several."""
        return self._only if self._only is not None else self._any

    def learn(self, tests: Sequence[Outcome]) -> None:
        """Clear the pairs that earlier tests have shown to be good."""
        for test in tests:
            if test.passed:
                self._history.append(test)
                self._note(test)

    def _note(self, test: Outcome) -> None:
        if test.passed:
            self._any.passed(test.hosts)
            if self._only is not None:
                self._only.passed(test.hosts)
        elif self._only is not None:
            self._only.failed(test.hosts)
        while self._only is not None and not self._only.count():
            # One test may have been wrong; where two must have been, there are several pairs.
            self._only = None if self._only.level or not self._only.widen() else self._only

    def plan(self, chance: random.Random) -> list[Group]:
        """Return the next round; none once all is found."""
        if not self._searching:
            return [] if self._more <= self._enough else [self._everyone()]
        doubtful = [pair for pair in self._direct if pair not in self.bad]
        if doubtful:
            return self._with_more(doubtful)
        if self._candidates.degree() <= FEW_PARTNERS:
            return list(self._candidates.disjoint())
        return self._split(chance)

    def record(self, tests: Sequence[Outcome]) -> None:
        """Draw conclusions from a round that was planned here."""
        found = len(self.bad)
        if not self._searching:
            self._record_everyone(tests)
        elif self._direct or self._candidates.degree() <= FEW_PARTNERS:
            self._record_direct(tests)
        else:
            self._record_split(tests)
        if len(self.bad) > found:
            self._begin_again()
        if self._searching and not self._direct and (len(self.bad) > found or not self._candidates.count()):
            self._searching = False  # ask all hosts again whether there is another one
            self._more = 0.0

    def _begin_again(self) -> None:
        """Look for the next pair with the tests that the known ones don't explain."""
        self._any, self._only = PairCandidates(self._hosts, self._any.level), PairCandidates(self._hosts)
        for pair in self.bad:
            self._any.forget(pair)
            self._only.forget(pair)
        for test in self._history:
            if not any(set(pair) <= set(test.hosts) for pair in self.bad):
                self._note(test)

    def _everyone(self) -> Group:
        """Return all hosts but for one host of each bad pair; in turn the one and the other."""
        out = {pair[self._whole % 2] for pair in self.bad}
        return tuple(host for host in self._hosts if host not in out)

    def _record_everyone(self, tests: Sequence[Outcome]) -> None:
        for test in tests:
            self._whole += 1
            self._more += self._passed if test.passed else self._failed
            self._history.append(test)
            self._note(test)
        if self._more >= 0.9 * self._failed:
            self._searching = True
            while not self._candidates.count() and self._any.widen():
                pass
            if not self._candidates.count():  # everything has passed three times: begin again
                self._history.clear()
                self._any.level = 0
                self._begin_again()

    def _split(self, chance: random.Random) -> list[Group]:
        """Return equal groups of all hosts by chance, of which no bad pair is in one."""
        groups: list[set[str]] = [set() for _ in range(self._groups)]
        for number, host in enumerate(chance.sample(self._hosts, len(self._hosts))):
            never = {other for pair in self.bad if host in pair for other in pair} - {host}
            possible = [groups[(number + n) % self._groups] for n in range(self._groups)]
            group = next((each for each in possible if not each & never), None)
            if group is not None:  # else it sits this round out
                group.add(host)
        return [tuple(sorted(group)) for group in groups if len(group) > 1]

    def _record_split(self, tests: Sequence[Outcome]) -> None:
        for test in tests:
            self._history.append(test)
            self._note(test)
        failed = sum(not test.passed for test in tests)
        if tests and failed == len(tests):  # smaller groups pass more often
            self._groups = min(MOST_GROUPS, self._groups + 1)
        elif not failed:
            self._groups = max(2, self._groups - 1)

    def _with_more(self, doubtful: Sequence[Pair]) -> list[Group]:
        """Return the pairs that failed, and beside them others of hosts that are free."""
        groups: list[Group] = []
        used: set[str] = set()
        for pair in [*doubtful, *self._candidates.disjoint()]:
            if not used & set(pair):
                used |= set(pair)
                groups.append(pair)
        return groups

    def _record_direct(self, tests: Sequence[Outcome]) -> None:
        start = -math.log(max(2, self._candidates.count()))
        for test in tests:
            pair = (test.hosts[0], test.hosts[1])
            odds = self._direct.get(pair, start) + (self._passed if test.passed else self._failed)
            self._direct.pop(pair, None)
            if odds >= SURE_LOG_ODDS:
                self.bad[pair] = 1 / (1 + math.exp(-odds))
            elif odds > start + self._passed / 2:
                self._direct[pair] = odds
            else:
                self._history.append(Outcome(test.hosts, passed=True))
                self._note(self._history[-1])
