r"""A format that the user describes: regular expressions with named groups, on the command line or in a small file.

    pyrometer-follow train.log --run=x --pattern='step (?P<step>\d+) .* loss (?P<loss>\S+) .* (?P<seconds>[\d.]+ ms)'

Several patterns make one step of several lines. The file:

    name: our-trainer            # in the source label
    convention: megatron         # of its TFLOP/s and MFU
    lines:                       # patterns, one for each kind of line
      - 'iter (?P<step>[\d,]+)/'
      - 'loss: (?P<loss>.*), time: (?P<seconds>.*)'
    units: {seconds: ms}         # of numbers that are printed without one
    mean: loss                   # of pairs such as 0.31/0.29 the second number
"""

from __future__ import annotations

import contextlib
import functools
import re
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pyrometer.follow import small_yaml
from pyrometer.follow.follower import report
from pyrometer.follow.log_line import Format, LoggedPause, LoggedStep, parse_step
from pyrometer.follow.units import VALUES, is_unit, number_of

_PAUSES = ("checkpoint", "eval")
_STEP = "step"
_GROUPS = (_STEP, *VALUES, *_PAUSES)
# 1.2k is no number of a step.
_NUMBER_OF_STEP = re.compile(r"(?:\s*\d{1,3}(?:[,'_ ]\d{3})+|\s*\d+)(?![\da-zA-Z]|\.\d)")
# A pattern can take longer on a line of fifty letters than anybody waits. It is cut off after so many seconds, and left
# out for so many times as long: at most a twentieth of a core is lost.
MATCH_SECONDS = 0.5
RESTS = 20
_KEYS = ("name", "convention", "lines", "units", "mean")


class Description(NamedTuple):
    """Description of a format by the user.

    Attributes:
        lines: Patterns.
        units: Of values that are printed without one, by value.
        means: Values of which the second number of a pair counts.
        name: In the ``source`` label.
        convention: Of its own TFLOP/s.
    """

    lines: tuple[re.Pattern[str], ...]
    units: Mapping[str, str]
    means: frozenset[str]
    name: str = "pattern"
    convention: str = ""


def read_description(path: Path) -> Description:
    """Read the description of a format from a file.

    Raises:
        OSError: it can't be read.
        ValueError: it says something that isn't understood; the message is one line.
    """
    content = small_yaml.parse(path.read_text(encoding="utf-8", errors="replace"))
    unknown = sorted(set(content) - set(_KEYS))
    if unknown:
        raise ValueError(f"unknown key {unknown[0]}; known are {', '.join(_KEYS)}")
    lines, units, means = (content.get(key) or [] for key in ("lines", "units", "mean"))
    lines, means = ([value] if isinstance(value, str) else value for value in (lines, means))
    if isinstance(units, (str, list)):
        if units:
            raise ValueError("units is not a mapping such as {seconds: ms}")
        units = {}
    name, convention = (content.get(key) or "" for key in ("name", "convention"))
    if not (
        isinstance(lines, list) and isinstance(means, list) and isinstance(name, str) and isinstance(convention, str)
    ):
        raise ValueError("lines and mean are lists, name and convention are words")
    described = describe(lines, units, means)
    return described._replace(name=name or path.stem, convention=convention)


def describe(lines: Sequence[str], units: Mapping[str, str] | None = None, means: Sequence[str] = ()) -> Description:
    """Check what the user says about a format.

    Raises:
        ValueError: a pattern isn't a regular expression, names an unknown group, or none has ``step``.
    """
    patterns = tuple(_compile(line) for line in lines)
    groups = {group for pattern in patterns for group in pattern.groupindex}
    if _STEP not in groups:
        raise ValueError(r"no pattern has the group step: write the step's number as (?P<step>\d+)")
    for value, unit in (units or {}).items():
        if value not in VALUES or not is_unit(unit, value):
            raise ValueError(f"unknown unit {unit} of {value}")
    unknown = sorted(set(means) - set(VALUES))
    if unknown:
        raise ValueError(f"unknown value {unknown[0]} in mean; known are {', '.join(VALUES)}")
    return Description(patterns, dict(units or {}), frozenset(means))


def _compile(text: str) -> re.Pattern[str]:
    try:
        pattern = re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"pattern {text!r} is not a regular expression: {error}") from None
    unknown = sorted(set(pattern.groupindex) - set(_GROUPS))
    if unknown:
        raise ValueError(f"unknown group {unknown[0]} in {text!r}; known are {', '.join(_GROUPS)}")
    if not pattern.groupindex:
        raise ValueError(f"pattern {text!r} has no named group such as (?P<step>\\d+)")
    return pattern


def format_of(description: Description) -> Format:
    """Return the format that is described."""
    return Format(description.name, description.convention, functools.partial(PatternParser, description))


class CutOff(Exception):  # noqa: N818 - no error: the caller asked for it
    """The computation took longer than it may."""


@contextlib.contextmanager
def cut_off(seconds: float) -> Iterator[None]:
    """Raise CutOff in the block after so many seconds of this process's CPU; in the main thread, which has signals.

    Raises:
        CutOff: the time is over.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGVTALRM, _raise)
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _raise(*_: object) -> None:
    raise CutOff


class _KindOfLine:
    """Pauses a pattern after a line that took it too long, as the follower shares its node with the training."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern = pattern
        self._rests_until = 0.0
        self._said = False

    def search(self, line: str) -> re.Match[str] | None:
        """Return the match in a line; None as well while the pattern rests."""
        began = time.monotonic()
        if began < self._rests_until:
            return None
        try:
            with cut_off(MATCH_SECONDS):
                return self._pattern.search(line)
        except CutOff:
            now = time.monotonic()
            self._rests_until = now + RESTS * (now - began)
            self._say()
            return None

    def _say(self) -> None:
        if not self._said:
            self._said = True
            report(
                f"--pattern {self._pattern.pattern!r} took more than {MATCH_SECONDS:g} s on a line, which is left out:"
                " a repeat in a repeat, such as (a+)+, tries every way to match"
            )


class PatternParser:
    """Collects the values of a step, which ends when all patterns have matched, or with the number of the next."""

    def __init__(self, description: Description) -> None:
        self._description = description
        self._lines = [_KindOfLine(pattern) for pattern in description.lines]
        self._values: dict[str, float] = {}
        self._step: int | None = None
        self._matched: set[int] = set()

    def feed(self, line: str) -> LoggedStep | LoggedPause | None:
        """See :class:`~pyrometer.follow.log_line.Parser`."""
        pause: LoggedPause | None = None
        finished: LoggedStep | None = None
        for index, kind in enumerate(self._lines):
            match = kind.search(line)
            if match is None:
                continue
            texts = {name: text for name, text in match.groupdict().items() if text is not None}
            pause = next((LoggedPause(name) for name in _PAUSES if name in texts), pause)
            finished = self._begin(texts.get(_STEP)) or finished
            self._add(index, texts)
        if finished is None and self._is_whole():
            finished = self._finish()
        return finished or pause

    def _begin(self, digits: str | None) -> LoggedStep | None:
        """Take the number of a step; return the last one if this is the next."""
        match = None if digits is None else _NUMBER_OF_STEP.match(digits)
        step = parse_step(re.sub(r"\D", "", match[0])) if match else None
        if step is None or step == self._step:
            return None
        last = None if self._step is None else self._finish()  # what came before the first number belongs to it
        self._step = step
        return last

    def _add(self, index: int, texts: Mapping[str, str]) -> None:
        self._matched.add(index)
        units, means = self._description.units, self._description.means
        for name in VALUES:
            number = number_of(texts[name], name, units.get(name, ""), mean=name in means) if name in texts else None
            if number is not None:
                self._values[name] = number

    def _is_whole(self) -> bool:
        wanted = (
            index for index, each in enumerate(self._description.lines) if not set(_PAUSES) & set(each.groupindex)
        )
        return self._step is not None and self._matched.issuperset(wanted)

    def _finish(self) -> LoggedStep | None:
        step, values = self._step, dict(self._values)
        self._step, self._values, self._matched = None, {}, set()
        if step is None:
            return None
        mfu = values.get("mfu")
        if mfu is not None and mfu > 1:  # printed in percent, without the sign
            values["mfu"] = mfu / 100
        return LoggedStep(step, **values)
