"""Choose the disjoint groups that a round tests to find bad hosts: by pairs, on a grid (Imbue), or by halving."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyrometer_exporters.commands.bisect.belief import SWITCH_MARK, Switches

Group = tuple[str, ...]
METHODS = ("pairs", "grid", "halve")
# A switch that is bad with more than this probability is not crossed by tests of hosts.
SUSPICIOUS_SWITCH = 0.1
# A group of one host gives too little, one that surely fails gives nothing: most is learned at one to one.
BEST_CHANCE_TO_PASS = 0.5


@dataclass(frozen=True)
class Known:
    """The knowledge that a round is planned with.

    Attributes:
        hosts: all of them.
        bad: the probability to be bad of each host and switch.
        open: hosts and switches about which more has to be known.
        prior: the probability to be bad of a host that was never tested.
        size: hosts in the smallest group that the command can test.
    """

    hosts: Sequence[str]
    switches: Switches
    bad: Mapping[str, float]
    open: frozenset[str]
    prior: float
    size: int

    def zone(self, host: str) -> str:
        """Return the suspicious switch of a host, whose hosts are tested among themselves; else an empty string."""
        name = self.switches.get(host, "")
        return name if self.bad.get(f"{SWITCH_MARK}{name}", 0.0) > SUSPICIOUS_SWITCH else ""


def host_round(method: str, number: int, known: Known, chance: random.Random) -> list[Group]:
    """Return the groups of round ``number``, from 0 on."""
    if known.size == 1:
        return [(host,) for host in known.hosts if host in known.open]
    if method == "grid" and number < 2 and len(known.hosts) >= 2 * known.size**2:
        return _grid(known, number)
    groups = list(_crossings(known, chance))
    used = {host for group in groups for host in group}
    for hosts in _zones(known, used, chance):
        groups += _halves(known, hosts) if method == "halve" else _matched(known, hosts)
    return groups


def _grid(known: Known, number: int) -> list[Group]:
    """Return the rows of a square of all hosts, and for the second round its columns."""
    side = math.isqrt(len(known.hosts) - 1) + 1
    lines: list[list[str]] = [[] for _ in range(side)]
    for place, host in enumerate(known.hosts):
        lines[place // side if number == 0 else place % side].append(host)
    return _large_enough([line for line in lines if line], known.size)


def _large_enough(lines: list[list[str]], size: int) -> list[Group]:
    if len(lines) > 1 and len(lines[-1]) < size:
        last = lines.pop()
        lines[-1] += last
    return [tuple(line) for line in lines if len(line) >= size]


def _crossings(known: Known, chance: random.Random) -> Iterator[Group]:
    """Yield a group across each switch about which more has to be known, of the best hosts on both sides."""
    used: set[str] = set()
    shuffled = chance.sample(known.hosts, len(known.hosts))
    best = sorted(shuffled, key=lambda host: known.bad[host])
    for name in sorted(each.removeprefix(SWITCH_MARK) for each in known.open if each.startswith(SWITCH_MARK)):
        free = [host for host in best if host not in used]
        inside = next((host for host in free if known.switches.get(host) == name), None)
        outside = [host for host in free if known.switches.get(host) != name and not known.zone(host)]
        if inside is not None and len(outside) >= known.size - 1:
            group = (inside, *outside[: known.size - 1])
            used.update(group)
            yield group


def _zones(known: Known, used: set[str], chance: random.Random) -> Iterator[list[str]]:
    """Yield the hosts that may be tested together, in an order of chance."""
    zones: dict[str, list[str]] = defaultdict(list)
    for host in chance.sample(known.hosts, len(known.hosts)):
        if host not in used:
            zones[known.zone(host)].append(host)
    yield from (zones[name] for name in sorted(zones))


def _split(known: Known, hosts: Sequence[str]) -> tuple[list[str], list[str], list[str]]:
    """Return suspects, the other open hosts, and those that make good company, the best first."""
    suspects = sorted(
        (h for h in hosts if h in known.open and known.bad[h] > 2 * known.prior), key=lambda h: -known.bad[h]
    )
    others = [host for host in hosts if host in known.open and known.bad[host] <= 2 * known.prior]
    company = sorted((h for h in hosts if h not in known.open and known.bad[h] <= 0.5), key=lambda h: known.bad[h])
    return suspects, others, company


def _matched(known: Known, hosts: Sequence[str]) -> list[Group]:
    """Return each suspect with trusted hosts, and the others among themselves, in the smallest groups."""
    suspects, others, company = _split(known, hosts)
    # Where nobody is trusted yet, those that have failed nowhere are the next best.
    lent = sorted(others, key=lambda host: known.bad[host])
    groups: list[list[str]] = []
    left: list[str] = []
    for suspect in suspects:
        partners, rest = _taken(company, known.size - 1)
        if len(partners) < known.size - 1:
            more, lent = _taken([h for h in lent if h not in partners], known.size - 1 - len(partners))
            partners += more
        if len(partners) == known.size - 1:
            company = rest
            groups.append([suspect, *partners])
        else:
            left.append(suspect)
    used = {host for group in groups for host in group}
    waiting = [*left, *(host for host in others if host not in used)]
    groups += [waiting[start : start + known.size] for start in range(0, len(waiting), known.size)]
    if groups and len(groups[-1]) < known.size:
        groups = _filled(groups, company, known.size)
    return [tuple(group) for group in groups]


def _taken(items: Sequence[str], count: int) -> tuple[list[str], list[str]]:
    return list(items[:count]), list(items[count:])


def _filled(groups: list[list[str]], company: Sequence[str], size: int) -> list[list[str]]:
    """Complete the last group with trusted hosts, else add it to the one before it."""
    last = groups.pop()
    missing = size - len(last)
    if len(company) >= missing:
        return [*groups, [*last, *company[:missing]]]
    if groups:
        groups[-1] += last
    return groups


def _halves(known: Known, hosts: Sequence[str]) -> list[Group]:
    """Return groups that pass with a probability of about one half."""
    suspects, others, company = _split(known, hosts)
    groups: list[list[str]] = [[]]
    passes = 1.0
    for host in [*suspects, *others]:
        if groups[-1] and passes * (1 - known.bad[host]) < BEST_CHANCE_TO_PASS:
            groups.append([])
            passes = 1.0
        groups[-1].append(host)
        passes *= 1 - known.bad[host]
    complete = []
    for group in groups:
        partners, rest = _taken(company, max(0, known.size - len(group)))
        if group and len(group) + len(partners) >= known.size:
            company = rest
            complete.append((*group, *partners))
    short = [host for group in groups if group and len(group) < known.size for host in group]
    if not complete and len(short) >= known.size:  # nobody to keep them company yet
        complete.append(tuple(short))
    return complete
