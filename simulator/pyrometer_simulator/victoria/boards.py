"""Comparison of the cluster version's answers to boards with those of Prometheus: the same series and marks."""

from __future__ import annotations

import json
import math
import time
import urllib.parse
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from pyrometer_kit.http_client import get_json

# Scrapes and the records that are built on them are on their way; vmalert's come an evaluation later for each.
PAST_SECONDS = 20.0
SIDE_BY_SIDE = 4
# A GPU of a dead node has this much on the map, far above any deviation.
MAP = "gpu-matrix.json / GPU map"
GONE = 1e6

Answer = frozenset[tuple[str, bool]]


def answer(url: str, asked: tuple[str, str], at: float) -> Answer | None:
    """Return the series of (where, expression), each with whether it is the map's mark of what is gone, or None.

    Names of metrics are left out, as the engines keep them after different functions; so is what is not a number. None
    is no answer, where an empty one is an answer.
    """
    where, expression = asked
    marks = where.startswith(MAP)
    parameters = urllib.parse.urlencode({"query": expression, "time": f"{at:.3f}"})
    try:
        rows = get_json(f"{url}/api/v1/query?{parameters}")["data"]["result"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return frozenset(
        (_labels(row["metric"]), marks and _value(row) >= GONE) for row in rows if not math.isnan(_value(row))
    )


def _value(row: Mapping[str, Any]) -> float:
    """Return the value of a series, of a range of samples the newest."""
    return float((row.get("value") or row["values"][-1])[1])


def _labels(metric: dict[str, str]) -> str:
    return json.dumps({name: value for name, value in metric.items() if name != "__name__"}, sort_keys=True)


@dataclass
class Boards:
    """All expressions of all boards, asked of both.

    Attributes:
        ours: the cluster version's address.
        theirs: Prometheus' address.
        expressions: where an expression is asked, and the expression.
        differ: where the two differ without any fault, which is no fault's doing; found by ``exclude_differences``.
        answered: how many of those that are compared show something; found by ``exclude_differences``.
    """

    ours: str
    theirs: str
    expressions: Sequence[tuple[str, str]]
    differ: set[str] = field(default_factory=set)
    answered: int = 0

    def compared(self) -> list[tuple[str, str]]:
        """Return the expressions that are compared."""
        return [each for each in self.expressions if each[0] not in self.differ]

    def marks(self) -> int:
        """Return how many GPUs the cluster version marks as gone on the map."""
        at = time.time() - PAST_SECONDS
        rows = [answer(self.ours, each, at) or () for each in self.expressions if each[0].startswith(MAP)]
        return sum(gone for row in rows for _, gone in row)

    def exclude_differences(self, seconds: float) -> None:
        """Wait until as much as possible is alike; what still differs in the end is compared no more."""
        self.differ = set()
        self.differ = set(self.until_alike(seconds))
        at = time.time() - PAST_SECONDS
        self.answered = sum(bool(answer(self.ours, each, at)) for each in self.compared())

    def until_alike(self, seconds: float) -> list[str]:
        """Ask again what differs until nothing does; return what still differs after so many seconds."""
        deadline, waiting = time.time() + seconds, self.compared()
        while waiting:
            at = time.time() - PAST_SECONDS
            waiting = self._unlike(waiting, at)
            if time.time() > deadline:
                break
            time.sleep(2.0 if waiting else 0.0)
        return [where for where, _ in waiting]

    def unanswered(self, until: float) -> tuple[int, int]:
        """Ask each once, until a Unix time; return how many had no answer and how many were asked."""
        asked, without = 0, 0
        with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
            todo = self.compared()
            while todo and time.time() < until:
                some, todo = todo[:SIDE_BY_SIDE], todo[SIDE_BY_SIDE:]
                answers = pool.map(lambda each: answer(self.ours, each, time.time() - PAST_SECONDS), some)
                without += sum(each is None for each in answers)
                asked += len(some)
        return without, asked

    def _unlike(self, expressions: Iterable[tuple[str, str]], at: float) -> list[tuple[str, str]]:
        def unlike(each: tuple[str, str]) -> bool:
            expected = answer(self.theirs, each, at)
            return expected is None or answer(self.ours, each, at) != expected

        with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
            some = list(expressions)
            return [each for each, is_so in zip(some, pool.map(unlike, some), strict=True) if is_so]
