"""Keep the pairs of hosts that may be bad together although each of them is good.

All pairs of 512 hosts are 130,816: a row of bits for each host holds those that no passing group has had inside, those
that at most one had, and those that at most two had.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

Pair = tuple[str, str]


class PairCandidates:
    """Pairs by how many tests speak against them."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self._hosts = tuple(hosts)
        self.bit: Mapping[str, int] = {host: 1 << number for number, host in enumerate(hosts)}
        self._everyone = (1 << len(hosts)) - 1
        # Row by row, the pairs with no test against them, with at most one, with at most two.
        self._levels = [{host: self._everyone & ~self.bit[host] for host in hosts} for _ in range(3)]

    def passed(self, group: Sequence[str]) -> None:
        """Record that these hosts ran well together."""
        inside = self._mask(group)
        for host in group:
            if host in self.bit:
                self._against(host, inside)

    def _against(self, host: str, others: int) -> None:
        zero, once, twice = self._levels
        twice[host] &= ~(others & ~once[host])
        once[host] &= ~(others & ~zero[host])
        zero[host] &= ~others

    def _mask(self, group: Sequence[str]) -> int:
        return sum(self.bit[host] for host in group if host in self.bit)

    def forget(self, pair: Pair) -> None:
        """Take a pair off the list whatever happens: it is known to be bad, or good."""
        first, second = pair
        for rows in self._levels:
            rows[first] &= ~self.bit[second]
            rows[second] &= ~self.bit[first]

    def count(self) -> int:
        """Return how many pairs no test has cleared."""
        return sum(row.bit_count() for row in self._levels[0].values()) // 2

    def at(self, level: int) -> Iterator[Pair]:
        """Yield the pairs with no more than so many tests against them, 0 to 2; each once."""
        for host, row in self._levels[level].items():
            yield from ((host, other) for other in _members(row & ~(2 * self.bit[host] - 1), self._hosts))

    def inside(self, group: Sequence[str]) -> list[Pair]:
        """Return the pairs within a group that no test has cleared."""
        mask = self._mask(group)
        rows = self._levels[0]
        return [
            (host, other)
            for host in group
            for other in _members(rows[host] & mask & ~(2 * self.bit[host] - 1), self._hosts)
        ]

    def has_inside(self, group: Sequence[str]) -> bool:
        """Return whether there is such a pair."""
        mask = self._mask(group)
        return any(self._levels[0][host] & mask for host in group)

    def doubts(self, host: str, group: Sequence[str]) -> int:
        """Return with how many hosts of a group this one has not run well yet."""
        return (self._levels[0][host] & self._mask(group)).bit_count()


def _members(bits: int, hosts: Sequence[str]) -> list[str]:
    members = []
    while bits:
        lowest = bits & -bits
        members.append(hosts[lowest.bit_length() - 1])
        bits ^= lowest
    return members
