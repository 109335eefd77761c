"""Remarks to the person who started the follower: why a log is not understood, and why a run has no MFU."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from pyrometer.follow.log_line import Format, clean
from pyrometer.follow.recorder import FirstStep

UNKNOWN_AFTER_SECONDS = 20.0
"""After this long without a step the log is reported as unknown; a person at the terminal is still waiting."""
# Fewer of its words than half, and a format is not near.
_NEAR = 0.5
_LONGEST = 120
_NUMBERS = re.compile(r"\d+(?:\.\d+)?")
_WORDS = re.compile(r"\b(?:step|iter|iteration|batch|loss|epoch)\b", re.IGNORECASE)


class UnknownLog:
    """Looks for the format that is nearest to a log in which no step was found.

    Args:
        formats: That were tried, by name.
    """

    def __init__(self, formats: Mapping[str, Format]) -> None:
        self._formats = formats
        self._lines = 0
        self._nearest = (0.0, "", "", ())  # type: tuple[float, str, str, tuple[str, ...]]
        self._likely = (0, "")
        self._since: float | None = None
        self._said = False

    def read(self, lines: Sequence[str], now: float) -> None:
        """Compare lines, read at monotonic second ``now``, with the formats."""
        if self._since is None:
            self._since = now
        for line in lines:
            text = clean(line).text.strip()
            if text:
                self._compare(text)

    def remark(self, now: float) -> str | None:
        """Return what to say at this second; once, None before and after."""
        if self._said or self._since is None or now - self._since < UNKNOWN_AFTER_SECONDS:
            return None
        self._said = True
        if not self._lines:
            return "the log is empty so far"
        return f"no training step in {self._lines} lines so far: {self._finding()}"

    def _compare(self, text: str) -> None:
        self._lines += 1
        likely = len(_NUMBERS.findall(text[:1000])) * (3 if _WORDS.search(text) else 1)
        if likely > self._likely[0]:
            self._likely = (likely, text)
        for name, format_ in self._formats.items():
            missing = tuple(mark for mark in format_.marks if mark not in text)
            share = 1 - len(missing) / len(format_.marks) if format_.marks else 0.0
            if share > self._nearest[0]:
                self._nearest = (share, name, text, missing)

    def _finding(self) -> str:
        share, name, line, missing = self._nearest
        way_out = "describe its lines with --pattern, or choose a --format"
        if share < _NEAR:
            if not self._likely[1]:
                return f"no line has a number, and no format is similar; {way_out}"
            return f"no format is similar; the line most like a step is {_short(self._likely[1])}; {way_out}"
        lacks = f"lacks {', '.join(map(repr, missing))}" if missing else "has the same words in another order"
        return f"the most similar format is {name}, but {_short(line)} {lacks}; {way_out}"


def about_mfu(first: FirstStep, *, flops_per_token: float | None, has_peak: bool) -> str | None:
    """Return the run's FLOP/s and why it has no MFU, None where it has.

    Args:
        first: The first step that was recorded.
        flops_per_token: Of the model, None where unknown.
        has_peak: Whether the GPU or its peak is given.
    """
    lacking = list(_lacking(first, flops_per_token, has_peak))
    if not lacking:
        return None
    return f"step {first.step}: {_speed(first)}no MFU, as {' and '.join(lacking)}"


def _speed(first: FirstStep) -> str:
    tera = first.flops / first.seconds / 1e12
    per_gpu = f", {tera / first.gpus:,.1f} per GPU" if first.gpus else ""
    return f"{tera:,.1f} TFLOP/s{per_gpu}; " if tera else ""


def _lacking(first: FirstStep, flops_per_token: float | None, has_peak: bool) -> Iterator[str]:
    if flops_per_token is None:
        yield "the FLOPs of a token are unknown (--flops-per-token, or --model-config)"
    if not first.tokens:
        flags = "--tokens-per-step, or --global-batch-size and --sequence-length"
        yield f"the log doesn't print the tokens of a step ({flags})"
    if not first.gpus:
        yield "the log doesn't print the number of GPUs (--gpus)"
    if not has_peak:
        yield "the GPU is unknown (--gpu-model, or --peak-flops)"


def _short(line: str) -> str:
    return repr(line if len(line) <= _LONGEST else line[:_LONGEST] + "...")
