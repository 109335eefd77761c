r"""Formats as rows: the pattern of a step's line, what its fields mean, and the lines of evaluations and checkpoints.

In a pattern ``<step>`` is the number of the step, ``<fields>`` all of its fields, and the name of a meaning a number:
``iter <step>: loss <loss>, time <milliseconds>ms``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from functools import cache, partial
from typing import NamedTuple

from pyrometer.follow.log_line import (
    NUMBER,
    Format,
    LoggedPause,
    LoggedStep,
    Parser,
    parse_clock,
    parse_number,
    parse_step,
)
from pyrometer.follow.units import VALUES


def _times(factor: float) -> Callable[[str], float | None]:
    return lambda text: None if (number := parse_number(text)) is None else number * factor


def _one_in(text: str) -> float | None:
    rate = parse_number(text)
    return 1 / rate if rate else None


def _seconds_of_date(text: str) -> float | None:
    """Parse a date that has no time zone: only the difference of two counts."""
    try:
        return datetime.strptime(text, "%Y-%m-%d %H:%M:%S,%f").replace(tzinfo=timezone.utc).timestamp()
    except ValueError:
        return None


# By the name of a meaning: the value of a step that the number becomes, and its parser.
_MEANINGS: Mapping[str, tuple[str, Callable[[str], float | None]]] = {
    **{value: (value, parse_number) for value in VALUES},
    "milliseconds": ("seconds", _times(1e-3)),
    "steps_per_second": ("seconds", _one_in),
    "elapsed_milliseconds": ("elapsed", _times(1e-3)),
    "elapsed_hours": ("elapsed", _times(3600.0)),
    "clock": ("elapsed", parse_clock),
    "date": ("elapsed", _seconds_of_date),
    "flops": ("teraflops", lambda text: _times(1e-12)(text.removesuffix("FLOPS"))),
    "percent": ("mfu", _times(0.01)),
}
_SHAPES = {
    "step": r"\d+",
    "fields": ".*",
    "clock": r"(?:\d+ days?, )?[\d:]+",
    "date": r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}",
    "tokens": r"\d+",
    **dict.fromkeys(("loss", "grad_norm"), f"{NUMBER}|-?(?:nan|inf)"),
}
BETWEEN_BARS = r"(?:^|\|)([^|:]*):([^|]*)"
"""Fields such as ``lr: 1e-4 | lm loss: 2.04 |``; they and their order differ from fork to fork."""
WORDS = r"(?:^|\s)([a-z_]+):\s*(\S+)"
"""Fields such as ``loss:  7.6  grad_norm: 26.6``."""


class LineParser:
    """Parses lines one by one. A format that computes more has a class of its own, which overrides ``finish``."""

    def __init__(self, row: Row) -> None:
        self._row = row
        self._steps = row.steps
        self._constants: dict[str, float] = {}

    def feed(self, line: str) -> LoggedStep | LoggedPause | None:
        """See :class:`~pyrometer.follow.log_line.Parser`."""
        if self._row.constants and (match := compiled(self._row.constants).search(line)) is not None:
            self._constants.update(_values_of_groups(match))
        for count, pattern in enumerate(self._steps, 1):
            match = compiled(pattern).search(line)
            step = None if match is None else self._step(match)
            if step is not None:
                self._steps = self._steps[:count] if self._row.ranked else self._steps
                return step
        return self._row.pause(line)

    def finish(self, step: LoggedStep, texts: Mapping[str, str]) -> LoggedStep | None:  # noqa: ARG002  for others
        """Return the step of a line, given its groups and fields by name; None where it is none."""
        return step

    def _step(self, match: re.Match[str]) -> LoggedStep | None:
        row, groups = self._row, match.groupdict("")
        # Reversed, as the first of equal names counts.
        pairs = reversed(compiled(row.field).findall(groups.get("fields", "")))
        fields: dict[str, str] = {name.strip(): text.strip() for name, text in pairs}
        has_required = not row.required or any(name.startswith(row.required) for name in fields)
        number = parse_step(match["step"])
        if number is None or not has_required or any(name.startswith(row.foreign) for name in fields):
            return None
        values = {**self._constants, **_values(fields, row.fields), **_values_of_groups(match)}
        return self.finish(LoggedStep(number, **values), {**groups, **fields})


class BlockParser:
    """Collects the values of a block, which ends with the first other line, at the latest with the head of the next."""

    def __init__(self, row: Row) -> None:
        self._row = row
        self._step: int | None = None
        self._texts: dict[str, str] = {}
        self._pause: LoggedPause | None = None

    def feed(self, line: str) -> LoggedStep | LoggedPause | None:
        """See :class:`~pyrometer.follow.log_line.Parser`."""
        field = None if self._step is None else compiled(self._row.field).match(line)
        if field is not None:
            if parse_number(field[2]) is not None:
                self._texts[field[1]] = field[2]
            return None
        pause = self._row.pause(line) or self._pause
        step, self._step = self._finished(), None
        self._pause = pause if step is not None else None
        head = compiled(self._row.steps[0]).search(line)
        if head is not None:
            self._step, self._texts = parse_step(head["step"]), {}
        return step or pause

    def _finished(self) -> LoggedStep | None:
        if self._step is None or not self._texts:
            return None  # a line of progress alone
        return LoggedStep(self._step, **_values(self._texts, self._row.fields))


class Row(NamedTuple):
    """A format as a row of a table; what a row lacks, its lines don't have.

    Attributes:
        name: See :class:`~pyrometer.follow.log_line.Format`, as for ``convention``, ``marks`` and ``lines``.
        steps: Patterns of the lines of steps; for a block, that of its head.
        fields: The name of the field with each meaning; of several names the first that has a number.
        field: Finds the name and the text of each field in ``<fields>``, or in a line of a block.
        required: Beginnings of names, of which a step has one.
        foreign: Beginnings of names that the steps of similar formats have.
        constants: Pattern of a line before the steps, with values of each.
        checkpoint: Pattern of the lines of checkpoints.
        evaluation: Pattern of the lines of evaluations.
        ranked: Whether lines of one pattern stand for those of the patterns after it.
        parser: Makes a parser for one log: LineParser, BlockParser, or a class of the format's own.
    """

    name: str
    convention: str
    marks: tuple[str, ...]
    steps: tuple[str, ...]
    fields: Mapping[str, str | tuple[str, ...]] = {}
    field: str = BETWEEN_BARS
    required: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    constants: str = ""
    checkpoint: str = ""
    evaluation: str = ""
    ranked: bool = False
    lines: int = 1
    parser: Callable[[Row], Parser] = LineParser

    def format(self) -> Format:
        """Return the format."""
        return Format(self.name, self.convention, partial(self.parser, self), self.marks, self.lines)

    def pause(self, line: str) -> LoggedPause | None:
        """Return the pause that a line is about."""
        for tag, pattern in (("eval", self.evaluation), ("checkpoint", self.checkpoint)):
            if pattern and compiled(pattern).search(line):
                return LoggedPause(tag)
        return None


@cache
def compiled(text: str) -> re.Pattern[str]:
    """Return a pattern of a row, which may have names in angle brackets."""
    return re.compile(
        re.sub(r"(?<!\?P)<(\w+)>", lambda match: f"(?P<{match[1]}>{_SHAPES.get(match[1], NUMBER)})", text)
    )


def _values_of_groups(match: re.Match[str]) -> dict[str, float]:
    return _values(match.groupdict(""), {name: name for name in match.groupdict() if name in _MEANINGS})


def _values(texts: Mapping[str, str], fields: Mapping[str, str | tuple[str, ...]]) -> dict[str, float]:
    """Return values by name; of a pair ``892.1/880.4`` (last, mean) the last counts, and no MFU is below zero."""
    values: dict[str, float] = {}
    for meaning, names in fields.items():
        value, parse = _MEANINGS[meaning]
        for name in (names,) if isinstance(names, str) else names:
            number = parse(texts.get(name, "").partition("/")[0])
            if number is not None and not (value == "mfu" and number < 0):
                values.setdefault(value, number)
    return values
