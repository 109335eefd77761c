"""The ranks of a group as a short text: ``0-3``, ``0-56:8`` (every eighth), ``0-1,4-5``."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from functools import lru_cache

MOST_TEXT = 96
MOST_RANKS = 1 << 17  # more than any job has; one text of a label makes so many numbers
_RUN = re.compile(r"(\d{1,7})(?:-(\d{1,7})(?::(\d{1,7}))?)?")


def text_of(ranks: Iterable[int]) -> str:
    """Return the text; of a group that has none short enough, ``#`` and a digest, the same for the same ranks."""
    left = sorted(set(ranks))
    runs = []
    while left:
        step = left[1] - left[0] if len(left) > 1 else 1
        count = 1
        while count < len(left) and left[count] - left[count - 1] == step:
            count += 1
        if count == 2 and step > 1:
            count = 1
        first, last = left[0], left[count - 1]
        runs.append(str(first) if count == 1 else f"{first}-{last}" + (f":{step}" if step > 1 else ""))
        left = left[count:]
    text = ",".join(runs)
    return text if len(text) <= MOST_TEXT else "#" + hashlib.sha256(text.encode()).hexdigest()[:12]


@lru_cache(maxsize=64)  # the same text for thousands of ranks
def ranks_of(text: str, most: int = MOST_RANKS) -> frozenset[int]:
    """Return the ranks; none for a digest, for what is no such text, and for more than so many."""
    ranks: set[int] = set()
    for run in text.split(","):
        match = _RUN.fullmatch(run)
        if match is None:
            return frozenset()
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if last < first or step < 1 or len(ranks) + (last - first) // step >= most:
            return frozenset()
        ranks.update(range(first, last + 1, step))
    return frozenset(ranks)
