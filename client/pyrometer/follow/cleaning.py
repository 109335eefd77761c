"""Lines of a log as the trainer wrote them: without colours, and without what launchers put before them."""

from __future__ import annotations

import re
from typing import NamedTuple

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# torchrun --tee: "[default7]:", "[rank0]:"; srun --label: " 12: ".
_PREFIX = re.compile(r"(?:\[(?:default|rank)(\d+)\]:?\s?|\s{0,6}(\d{1,6}):\s)")


class Clean(NamedTuple):
    """A line and the rank that its launcher says wrote it; empty where it doesn't say."""

    text: str
    rank: str


def clean(line: str) -> Clean:
    """Strip colours and launchers' prefixes.

    >>> clean("3: [default7]: iteration 1")
    Clean(text='iteration 1', rank='3/7')
    """
    text = _ANSI.sub("", line).rstrip("\r\n")
    ranks = []
    while (found := _PREFIX.match(text)) is not None:
        ranks.append(found[1] or found[2])
        text = text[found.end() :]
    return Clean(text, "/".join(ranks))
