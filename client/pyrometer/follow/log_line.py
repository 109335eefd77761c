"""Lines of a trainer's log: the prefixes of launchers, the values of a step, and the spelling of numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import NamedTuple, Protocol

# Commas separate thousands, nothing else: 2,37 is no number rather than 237.
NUMBER = r"[-+]?(?:(?:[1-9]\d{0,2}(?:,\d{3})+|\d+)(?!,?\d)(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
_SCALE = {"K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_WITH_UNIT = re.compile(rf"({NUMBER})\s*([KMBGTPE%]?)")
# Integers of more digits are no longer exact in a sample.
_MAX_INTEGER_DIGITS = 15
# Longer texts are not numbers.
_MAX_NUMBER_LENGTH = 64
_CLOCK = re.compile(r"(?:(\d{1,5}) days?, )?(\d{1,5}(?::\d{1,5}){1,2})")
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# torchrun --tee: "[default7]:", "[rank0]:"; srun --label: " 12: ".
_PREFIX = re.compile(r"(?:\[(?:default|rank)(\d+)\]:?\s?|\s{0,6}(\d{1,6}):\s)")


class CleanLine(NamedTuple):
    """A line as the trainer wrote it, and the rank that its launcher names; empty where it names none."""

    text: str
    rank: str


def clean(line: str) -> CleanLine:
    """Strip colours and launchers' prefixes.

    >>> clean("3: [default7]: iteration 1")
    CleanLine(text='iteration 1', rank='3/7')
    """
    text = _ANSI.sub("", line).rstrip("\r\n")
    ranks = []
    while (match := _PREFIX.match(text)) is not None:
        ranks.append(match[1] or match[2])
        text = text[match.end() :]
    return CleanLine(text, "/".join(ranks))


class LoggedStep(NamedTuple):
    """A step, or the mean of the steps since the last line; None where the line has no such value.

    Attributes:
        step: Number of the (last) step, as the log counts.
        seconds: Time of one step.
        elapsed: Seconds of training since its start, where only that is printed; the difference of two lines counts.
        samples: Sequences in one step, of all GPUs.
        sequence: Tokens per sequence.
        tokens: Tokens of one step, of all GPUs.
        samples_per_second: Of the whole job.
        tokens_per_second: Of the whole job.
        gpu_tokens_per_second: Of one GPU.
        teraflops: TFLOP/s per GPU as printed, in the framework's own convention.
        mfu: As printed, 0 to 1.
        loss: Loss.
        grad_norm: Gradient norm.
    """

    step: int
    seconds: float | None = None
    elapsed: float | None = None
    samples: float | None = None
    sequence: float | None = None
    tokens: float | None = None
    samples_per_second: float | None = None
    tokens_per_second: float | None = None
    gpu_tokens_per_second: float | None = None
    teraflops: float | None = None
    mfu: float | None = None
    loss: float | None = None
    grad_norm: float | None = None


class LoggedPause(NamedTuple):
    """An evaluation or a checkpoint between steps, by its tag in :data:`pyrometer.ring.TAGS`."""

    tag: str


class Parser(Protocol):
    """Reads one log, line by line; it may remember earlier lines."""

    def feed(self, line: str) -> LoggedStep | LoggedPause | None:
        """Parse a clean line (see :func:`clean`). Return None if it is not about a step."""
        ...


class Format(NamedTuple):
    """A trainer's format, one of ``FORMATS`` in its file.

    Attributes:
        name: As in ``--format`` and in the ``source`` label.
        convention: In which its own TFLOP/s are counted (:data:`pyrometer.flops.CONVENTIONS`), empty where not known.
        parser: Makes a parser for one log.
        marks: Words that its lines of steps have, by which a log that can't be read is compared with it.
        lines: Steps without a time that must be found before it is the log's: 2 where other trainers' logs have such
            lines as well.
    """

    name: str
    convention: str
    parser: Callable[[], Parser]
    marks: tuple[str, ...] = ()
    lines: int = 1


def parse_number(text: str) -> float | None:
    """Parse a number as logs write it: ``1,234``, ``8.79K``, ``13.99%`` (a ratio); ``nan`` and ``N/A`` are None.

    >>> parse_number("8.79K"), parse_number("13.99%"), parse_number("N/A")
    (8790.0, 0.1399, None)
    """
    text = text.strip()
    match = _WITH_UNIT.fullmatch(text) if len(text) <= _MAX_NUMBER_LENGTH else None
    if match is None:
        return None
    value = float(match[1].replace(",", ""))
    value = value / 100 if match[2] == "%" else value * _SCALE.get(match[2], 1.0)
    return value if math.isfinite(value) else None


def parse_step(digits: str) -> int | None:
    """Parse a step's number. Return None if it is too long to be one."""
    return int(digits) if len(digits) <= _MAX_INTEGER_DIGITS else None


def parse_clock(text: str) -> float | None:
    """Parse the time of a progress bar into seconds.

    >>> parse_clock("1:02:03"), parse_clock("1 day, 0:01:00")
    (3723.0, 86460.0)
    """
    match = _CLOCK.fullmatch(text)
    if match is None:
        return None
    seconds = 0
    for digits in match[2].split(":"):
        seconds = seconds * 60 + int(digits)
    return float(int(match[1] or 0) * 86_400 + seconds)
