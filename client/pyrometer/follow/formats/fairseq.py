"""fairseq: one line every ``log_interval`` updates.

`2020-07-17 06:48:46 | INFO | train_inner | epoch 001:    100 / 167138 loss=15.073, wps=4004.3, wpb=980.3,
num_updates=100, gnorm=7.216, wall=83` (one line, shortened): 0.9 and later, with means of the interval, or the same as
JSON with ``--log-format json``. Before 0.9 the line begins with `| epoch 001:`, and its loss and words are means since
the epoch began, which hide a slow step: only number and ``wall`` are read. Before 0.7 it has no number of updates and
isn't read.
"""

from __future__ import annotations

import re

from pyrometer.follow.log_line import Format, LoggedPause, LoggedStep, parse_number, parse_step

_FIELD = re.compile(r'(?:\b(\w+)=|"(\w+)": "?)([-+.\w]+)')
_EVAL = re.compile(r"\bvalid on '[^']{1,80}' subset\b|\| INFO \| valid \|")
_CHECKPOINT = re.compile(r"\b(?:Preparing to save|Saved|saved) checkpoint\b")
# Wall times are printed in whole seconds, of which the difference of two may be off by one.
_ROUNDING = 1.0


class FairseqParser:
    """Times a step by words per second, where the wall times of two lines agree with it; else by these."""

    def __init__(self) -> None:
        self._last: tuple[int, float] | None = None

    def feed(self, line: str) -> LoggedStep | LoggedPause | None:
        """See :class:`~pyrometer.follow.log_line.Parser`."""
        if _EVAL.search(line):
            return LoggedPause("eval")
        if "num_updates" not in line or "epoch" not in line:
            return LoggedPause("checkpoint") if _CHECKPOINT.search(line) else None
        fields = {name or quoted: value for name, quoted, value in _FIELD.findall(line)}
        digits = fields.get("num_updates", "")
        step = parse_step(digits) if digits.isdecimal() else None
        if step is None:
            return None
        wall = parse_number(fields.get("wall", ""))
        if "train_inner" not in line:
            return LoggedStep(step, elapsed=wall)
        tokens, rate = parse_number(fields.get("wpb", "")), parse_number(fields.get("wps", ""))
        return LoggedStep(
            step,
            seconds=self._seconds(step, wall, tokens / rate if tokens and rate else None),
            elapsed=wall,
            tokens=tokens,
            loss=parse_number(fields.get("loss", "")),
            grad_norm=parse_number(fields.get("gnorm", "")),
        )

    def _seconds(self, step: int, wall: float | None, seconds: float | None) -> float | None:
        """Return the time of one step if it fits the clock: on a TPU words belong to another span than updates."""
        last, self._last = self._last, None if wall is None else (step, wall)
        if last is None or wall is None or seconds is None or step <= last[0]:
            return None
        return seconds if abs(seconds * (step - last[0]) - (wall - last[1])) <= _ROUNDING else None


FORMAT = Format("fairseq", "", FairseqParser, ("epoch", "loss=", "wps=", "num_updates="))
