"""Simulate a cluster in which hosts, pairs of hosts and switches are bad, and tests are wrong now and then."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from pyrometer_exporters.commands.bisect.belief import Noise, Outcome
from pyrometer_exporters.commands.bisect.search import Answer, Search, Settings


@dataclass
class BadCluster:
    """Hosts ``gpu-001`` onwards, each leaf switch with the same number of them."""

    size: int
    bad_hosts: frozenset[str] = frozenset()
    bad_pairs: frozenset[frozenset[str]] = frozenset()
    bad_switches: frozenset[str] = frozenset()
    noise: Noise = field(default_factory=Noise)
    chance: random.Random = field(default_factory=lambda: random.Random(0))
    per_switch: int = 32
    least: int = 1  # hosts in the smallest group that the command can test: it fails on fewer
    rounds: int = 0
    tests: int = 0

    @cached_property
    def hosts(self) -> tuple[str, ...]:
        """Return all names."""
        return tuple(f"gpu-{number:03}" for number in range(1, self.size + 1))

    @cached_property
    def switches(self) -> dict[str, str]:
        """Return the leaf switch of each host."""
        return {host: f"leaf{number // self.per_switch:02}" for number, host in enumerate(self.hosts)}

    @classmethod
    def drawn(cls, size: int, seed: int, *, hosts: int = 0, pairs: int = 0, switches: int = 0,
              noise: Noise | None = None) -> BadCluster:  # fmt: skip
        """Return a cluster with so many bad hosts, pairs of other hosts, and switches, drawn by chance."""
        chance = random.Random(seed)
        cluster = cls(size, noise=noise or Noise(), chance=chance)
        drawn = chance.sample(cluster.hosts, hosts + 2 * pairs)
        cluster.bad_hosts = frozenset(drawn[:hosts])
        cluster.bad_pairs = frozenset(frozenset(drawn[n : n + 2]) for n in range(hosts, len(drawn), 2))
        cluster.bad_switches = frozenset(chance.sample(sorted(set(cluster.switches.values())), switches))
        return cluster

    def is_bad(self, group: Sequence[str]) -> bool:
        """Return whether a test of the group would fail without noise."""
        if len(group) < self.least:
            return True
        members = set(group)
        below = {self.switches[host] for host in group} if self.bad_switches else set()
        crossed = below & self.bad_switches if len(below) > 1 else set()
        return bool(members & self.bad_hosts or crossed or any(pair <= members for pair in self.bad_pairs))

    def test(self, group: Sequence[str]) -> Outcome:
        """Run the command on the group."""
        self.tests += 1
        noise = self.noise.missed if (bad := self.is_bad(group)) else self.noise.false_alarm
        wrong = self.chance.random() < noise
        return Outcome(tuple(group), bad if wrong else not bad)

    def search(self, settings: Settings, most_rounds: int = 200) -> Answer:
        """Let a search run to its end."""
        search = Search(settings)
        while (groups := search.plan()) and self.rounds < most_rounds:
            self.rounds += 1
            search.record([self.test(group) for group in groups])
        return search.answer()

    def hidden_pairs(self) -> frozenset[frozenset[str]]:
        """Return the bad pairs with a host behind a bad switch: a test of both fails whether they are bad or not."""
        behind = {host for host in self.hosts if self.switches[host] in self.bad_switches}
        return frozenset(pair for pair in self.bad_pairs if pair & behind)

    def is_right(self, answer: Answer) -> bool:
        """Return whether an answer names exactly what is bad and can be known."""
        return (
            set(answer.hosts) == self.bad_hosts
            and {frozenset(pair) for pair in answer.pairs} == self.bad_pairs - self.hidden_pairs()
            and set(answer.switches) == self.bad_switches
        )
