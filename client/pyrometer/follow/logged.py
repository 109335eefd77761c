"""What a line of a log says about a step, and how its numbers are written."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import NamedTuple, Protocol

NUMBER = r"[-+]?(?:\d[\d,]*(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
_SCALE = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_WITH_UNIT = re.compile(rf"({NUMBER})\s*([KMBTPE%]?)")
# More are no longer exact in a sample.
_INTEGER_DIGITS = 15
# What is longer is no number.
_LONGEST_NUMBER = 64


class Logged(NamedTuple):
    """A step, or the mean of the steps since the last line; None is not said.

    Attributes:
        step: number of the (last) step, as the log counts.
        seconds: of one step.
        elapsed: seconds of training since its start, where only that is printed; the difference of two lines counts.
        samples: sequences in one step, of all GPUs; ``sequence`` their tokens each; ``tokens`` those of one step.
        samples_per_second: of the whole job; ``gpu_tokens_per_second`` of one GPU.
        teraflops: TFLOP/s per GPU as printed, in the framework's own convention; ``mfu`` likewise, 0 to 1.
    """

    step: int
    seconds: float | None = None
    elapsed: float | None = None
    samples: float | None = None
    sequence: float | None = None
    tokens: float | None = None
    samples_per_second: float | None = None
    gpu_tokens_per_second: float | None = None
    teraflops: float | None = None
    mfu: float | None = None
    loss: float | None = None
    grad_norm: float | None = None


class Notice(NamedTuple):
    """Something that happened between steps: a tag of :data:`pyrometer.ring.TAGS`."""

    tag: str


class Parser(Protocol):
    """One log being read; it may remember earlier lines."""

    def feed(self, line: str) -> Logged | Notice | None:
        """What this line says; None where it says nothing of steps. The line is clean: no colours, no rank prefix."""


class Format(NamedTuple):
    """A trainer's format, the value of ``FORMAT`` in its own file.

    Attributes:
        name: as in ``--format`` and in the ``source`` label.
        convention: in which its own TFLOP/s are counted (:data:`pyrometer.flops.CONVENTIONS`), empty where not known.
        parser: makes a parser for one log.
    """

    name: str
    convention: str
    parser: type[Parser]


def number(text: str) -> float | None:
    """A number as logs write it: ``1,234``, ``8.79K``, ``13.99%`` (a ratio), ``nan`` and ``N/A`` are None.

    >>> number("8.79K"), number("13.99%"), number("N/A")
    (8790.0, 0.1399, None)
    """
    text = text.strip()
    found = _WITH_UNIT.fullmatch(text) if len(text) <= _LONGEST_NUMBER else None
    if found is None:
        return None
    value = float(found[1].replace(",", ""))
    value = value / 100 if found[2] == "%" else value * _SCALE.get(found[2], 1.0)
    return value if math.isfinite(value) else None


def whole(digits: str) -> int | None:
    """A step's number; None for what is too long to be one."""
    return int(digits) if len(digits) <= _INTEGER_DIGITS else None


def piped(text: str) -> dict[str, str]:
    """The pairs of ``lr: 1e-4 | lm loss: 2.04 | eta: 1 day, 1:45:39``; sets and order differ from fork to fork."""
    return dict(_pairs(text))


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    for part in text.split("|"):
        key, colon, value = part.partition(":")
        if colon:
            yield key.strip(), value.strip()


def first(fields: dict[str, str], *names: str) -> float | None:
    """The first of these fields that is a number."""
    found = (number(fields[name]) for name in names if name in fields)
    return next((value for value in found if value is not None), None)


def scaled(value: float | None, factor: float) -> float | None:
    """``value * factor``; unknown stays unknown."""
    return None if value is None else value * factor
