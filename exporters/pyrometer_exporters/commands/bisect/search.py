"""Search for bad hosts, pairs and switches, round by round.

A search is a function of its settings and of the rounds so far, so an interrupted one continues from the record of
its rounds.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from pyrometer_exporters.commands.bisect.belief import SWITCH_MARK, Noise, Outcome, Switches, probabilities
from pyrometer_exporters.commands.bisect.pair_search import PairSearch
from pyrometer_exporters.commands.bisect.plan import Group, Known, host_round

# Good hosts that fail together may be a bad pair: else one of them would be called bad where there is no noise.
BAD_PAIR: Final = 1e-3
BAD: Final = 0.5
"""A host is called bad from this probability on."""

LARGEST_FOR_PAIRS: Final = 2
"""A suspect pair is tested alone."""


@dataclass(frozen=True)
class Settings:
    """The question of a search.

    Attributes:
        hosts: names, each once.
        switches: the leaf switch of each host, where known.
        method: one of ``plan.METHODS``.
        size: hosts in the smallest group that the command can test.
        sure: the probability that all answers are right, at which the search ends.
        pairs: whether pairs of good hosts are looked for; they can't be where two hosts are too small a group.
        seed: of the choice of groups.
    """

    hosts: tuple[str, ...]
    switches: Switches = field(default_factory=dict)
    method: str = "pairs"
    size: int = 2
    noise: Noise = field(default_factory=Noise)
    sure: float = 0.99
    pairs: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse a question that has no answer."""
        if self.pairs and self.size > LARGEST_FOR_PAIRS:
            raise ValueError(f"pairs are tested as {LARGEST_FOR_PAIRS} hosts, fewer than {self.size}")

    @property
    def risk(self) -> float:
        """Return the probability of a mistake that each half of the search may leave."""
        return (1 - self.sure) / 4


@dataclass(frozen=True)
class Answer:
    """The result so far.

    Attributes:
        hosts: bad hosts with the probability that they are.
        pairs: hosts that are good, but not together.
        switches: bad switches with the probability that they are.
        open: hosts about which more would have to be known.
        untested: good hosts behind a bad switch, which were tested only among themselves.
        sure: the probability that all of this is right, and that nothing is missing.
        finished: whether that is as much as was asked for.
    """

    hosts: dict[str, float]
    pairs: dict[tuple[str, str], float]
    switches: dict[str, float]
    open: tuple[str, ...]
    untested: tuple[str, ...]
    sure: float
    finished: bool


class Search:
    """Plans rounds and draws conclusions from them."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._tests: list[Outcome] = []
        self._noise = replace(settings.noise, false_alarm=settings.noise.false_alarm + BAD_PAIR)
        self._bad = probabilities(settings.hosts, settings.switches, (), self._noise)
        self._pair_search: PairSearch | None = None
        self.rounds = 0

    @property
    def knows_switches(self) -> bool:
        """Return whether a switch can be the reason for a test that fails."""
        return bool(self._settings.switches)

    def plan(self) -> list[Group]:
        """Return the next round's groups, which share no host; none when the search is finished."""
        settings = self._settings
        chance = random.Random(f"{settings.seed}/{self.rounds}")  # noqa: S311  a seed makes a search repeatable
        if self._pair_search is not None:
            return self._pair_search.plan(chance)
        known = Known(
            settings.hosts, settings.switches, self._bad, self._open(), settings.noise.bad_host, settings.size
        )
        return host_round(settings.method, self.rounds, known, chance) if known.open else []

    def record(self, tests: Sequence[Outcome]) -> None:
        """Draw conclusions from a round; a test without an answer is left out of it."""
        self.rounds += 1
        settings = self._settings
        if self._pair_search is not None:
            self._pair_search.record(tests)
            return
        self._tests += tests
        self._bad = probabilities(settings.hosts, settings.switches, self._tests, self._noise)
        good = [host for host in settings.hosts if self._bad[host] < BAD and not self._behind_bad_switch(host)]
        if settings.pairs and not self._open() and len(good) >= LARGEST_FOR_PAIRS:
            self._pair_search = PairSearch(good, settings.noise, settings.risk, settings.size)
            self._pair_search.learn(self._tests)

    def answer(self) -> Answer:
        """Return the result so far."""
        bad = {name: value for name, value in self._bad.items() if value >= BAD}
        hosts = {name: value for name, value in bad.items() if not name.startswith(SWITCH_MARK)}
        pairs = self._pair_search.bad if self._pair_search is not None else {}
        wrong = self._mistakes() + (self._pair_search.risk if self._pair_search is not None else 0.0)
        behind = [host for host in self._settings.hosts if host not in hosts and self._behind_bad_switch(host)]
        return Answer(
            hosts=hosts,
            pairs=pairs,
            switches={name.removeprefix(SWITCH_MARK): value for name, value in bad.items() if name not in hosts},
            open=tuple(sorted(self._open())),
            untested=tuple(behind),
            sure=max(0.0, 1 - wrong),
            finished=not self.plan(),
        )

    def _mistakes(self) -> float:
        """Return the expected number of hosts and switches that would be judged wrongly now."""
        return math.fsum(min(value, 1 - value) for value in self._bad.values())

    def _open(self) -> frozenset[str]:
        """Return the hosts and switches whose risk is too much, the riskiest first, until the rest may stay."""
        doubts = sorted(((min(p, 1 - p), name) for name, p in self._bad.items()), reverse=True)
        left = math.fsum(doubt for doubt, _ in doubts)
        if left <= self._settings.risk:
            return frozenset()
        chosen = []
        for doubt, name in doubts:
            if left <= self._settings.risk / 4:
                break
            chosen.append(name)
            left -= doubt
        return frozenset(chosen)

    def _behind_bad_switch(self, host: str) -> bool:
        return self._bad.get(f"{SWITCH_MARK}{self._settings.switches.get(host, '')}", 0.0) >= BAD
