"""Rule groups as a ruler wants them: none evaluated more often than it likes, none of more rules than it takes.

Mimir, and what is hosted on it, takes 20 rules a group and 70 groups a tenant by default
(-ruler.max-rules-per-rule-group, -ruler.max-rule-groups-per-tenant), of which others need some.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from pyrometer_dashboards.rule_shards import groups_of, own_anchors
from pyrometer_dashboards.rule_stages import ANCHOR, NotSplitError, rules_of

MIMIR = 20
_INTERVAL = re.compile(r"(?m)^    interval: (\d+)([smhd])$")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_RULE = re.compile(r"(?m)^      - (?:alert|record): ")


def slower(text: str, seconds: int) -> str:
    """Return a rule file none of whose groups is evaluated more often than once in so many seconds."""

    def at_least(match: re.Match[str]) -> str:
        return match[0] if _seconds(match) >= seconds else f"    interval: {seconds}s"

    return _INTERVAL.sub(at_least, text)


def packed(texts: Mapping[str, str], most: int = MIMIR) -> dict[str, str]:
    """Return the rules in as few groups as have at most so many rules each, in one file for each interval.

    Rules that were in one group stay in their order. A group that has more is cut, and what follows the cut sees what
    comes before it up to an interval later.

    Raises:
        NotSplitError: a group that has more can't be cut.
    """
    by_interval: dict[str, list[str]] = {}
    for text in texts.values():
        for name, group in groups_of(text):
            match = _INTERVAL.search(group)
            interval = match[0].split()[1] if match else ""
            by_interval.setdefault(interval, []).extend(_pieces(name, group, most))
    return {
        f"pyrometer_{interval}.rules.yaml": _file(interval, pieces, most) for interval, pieces in by_interval.items()
    }


def _seconds(match: re.Match[str]) -> int:
    return int(match[1]) * _SECONDS[match[2]]


def _pieces(name: str, group: str, most: int) -> Iterator[str]:
    """Yield the texts of a group's rules, of at most so many each."""
    if len(_RULE.findall(group)) <= most:
        yield group.partition("    rules:\n")[2].rstrip() + "\n"
        return
    if ANCHOR.search(group):
        raise NotSplitError(f"{name}: it has more than {most} rules, which share text")
    _, rules = rules_of(name, group)
    for begin in range(0, len(rules), most):
        yield "".join(rule.text for rule in rules[begin : begin + most]).rstrip() + "\n"


def _file(interval: str, pieces: list[str], most: int) -> str:
    """Return a file of groups: the largest pieces first, each where it still fits."""
    groups: list[list[str]] = []
    # A name is an anchor once in a file.
    for number, piece in enumerate(sorted(pieces, key=_count, reverse=True)):
        room = next((group for group in groups if sum(map(_count, group)) + _count(piece) <= most), None)
        if room is None:
            groups.append(room := [])
        room.append(own_anchors(piece, number))
    head = f"    interval: {interval}\n    rules:\n"
    texts = [
        f"  - name: pyrometer_{interval}_{number}\n{head}{''.join(group)}" for number, group in enumerate(groups, 1)
    ]
    return "groups:\n" + "\n".join(texts)


def _count(piece: str) -> int:
    return len(_RULE.findall(piece))
