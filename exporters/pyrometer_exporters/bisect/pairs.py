"""Keep the pairs of hosts that may be bad together although each of them is good.

All pairs of 512 hosts are 130,816: a row of bits for each host holds those with no more than ``level`` tests against
them. A passing group is evidence against the pairs inside; a failing one against all others, if there is one bad pair.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Pair = tuple[str, str]


class PairCandidates:
    """Pairs by how many tests speak against them."""

    def __init__(self, hosts: Sequence[str], level: int = 0) -> None:
        self._hosts = tuple(hosts)
        self.bit: Mapping[str, int] = {host: 1 << number for number, host in enumerate(hosts)}
        self._everyone = (1 << len(hosts)) - 1
        # Row by row, the pairs with no test against them, with at most one, with at most two.
        self._levels = [{host: self._everyone & ~self.bit[host] for host in hosts} for _ in range(3)]
        self.level = level
        """How many tests may speak against a candidate: more than 0 once a test must have been wrong."""

    def passed(self, group: Sequence[str]) -> None:
        """Record that these hosts ran well together."""
        inside = self._mask(group)
        for host in group:
            if host in self.bit:
                self._against(host, inside)

    def failed(self, group: Sequence[str]) -> None:
        """Record that these hosts failed together, and that only one pair can be the reason."""
        inside = self._mask(group)
        for host, bit in self.bit.items():
            self._against(host, self._everyone & ~inside if bit & inside else self._everyone)

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

    def widen(self) -> bool:
        """Accept candidates with one more passing test; False if that is not possible."""
        if self.level + 1 >= len(self._levels):
            return False
        self.level += 1
        return True

    def count(self) -> int:
        """Return how many candidates there are."""
        return sum(row.bit_count() for row in self._rows().values()) // 2

    def degree(self) -> int:
        """Return the largest number of candidates that one host is in."""
        return max((row.bit_count() for row in self._rows().values()), default=0)

    def disjoint(self) -> list[Pair]:
        """Return candidates to be tested at once, those of the busiest hosts first; no host is in two."""
        rows = self._rows()
        free = (1 << len(self._hosts)) - 1
        chosen = []
        for host in sorted(self._hosts, key=lambda host: (-rows[host].bit_count(), host)):
            partners = rows[host] & free
            if free & self.bit[host] and partners:
                partner = min(_members(partners, self._hosts), key=lambda other: (rows[other].bit_count(), other))
                free &= ~(self.bit[host] | self.bit[partner])
                chosen.append((host, partner))
        return chosen

    def partners(self, host: str) -> int:
        """Return the candidates that a host is in, as the bits of the others."""
        return self._rows()[host]

    def _rows(self) -> dict[str, int]:
        return self._levels[self.level]


def _members(bits: int, hosts: Sequence[str]) -> list[str]:
    found = []
    while bits:
        lowest = bits & -bits
        found.append(hosts[lowest.bit_length() - 1])
        bits ^= lowest
    return found
