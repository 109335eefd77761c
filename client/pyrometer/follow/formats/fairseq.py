"""fairseq: one line every ``log_interval`` updates.

`2020-07-17 06:48:46 | INFO | train_inner | epoch 001:    100 / 167138 loss=15.073, wps=4004.3, wpb=980.3,
num_updates=100, gnorm=7.216, wall=83` (one line, shortened): 0.9 and later, with means of the interval, or the same as
JSON with ``--log-format json``. Before 0.9 the line begins with `| epoch 001:`, and its loss and words are means since
the epoch began, which hide a slow step: only number and ``wall`` are read. Before 0.7 it has no number of updates and
isn't read.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyrometer.follow.line_format import LineParser, Row
from pyrometer.follow.log_line import LoggedStep, parse_number

# Wall times are printed in whole seconds, of which the difference of two may be off by one.
_ROUNDING = 1.0


class FairseqParser(LineParser):
    """Times a step by words per second, where the wall times of two lines agree with it; else by these."""

    def __init__(self, row: Row) -> None:
        super().__init__(row)
        self._last: tuple[int, float] | None = None

    def finish(self, step: LoggedStep, texts: Mapping[str, str]) -> LoggedStep:
        """See :class:`~pyrometer.follow.line_format.LineParser`."""
        if "train_inner" not in texts["fields"]:
            return LoggedStep(step.step, elapsed=step.elapsed)
        rate = parse_number(texts.get("wps", ""))
        seconds = step.tokens / rate if step.tokens and rate else None
        return step._replace(seconds=self._confirmed(step.step, step.elapsed, seconds))

    def _confirmed(self, step: int, wall: float | None, seconds: float | None) -> float | None:
        """Return the time of one step if it fits the clock: on a TPU words belong to another span than updates."""
        last, self._last = self._last, None if wall is None else (step, wall)
        if last is None or wall is None or seconds is None or step <= last[0]:
            return None
        return seconds if abs(seconds * (step - last[0]) - (wall - last[1])) <= _ROUNDING else None


FORMATS = (
    Row(
        "fairseq", "", ("epoch", "loss=", "wps=", "num_updates="),
        (r'^(?=.*epoch)(?P<fields>.*?\bnum_updates(?:=|": "?)<step>(?![-+.\w]).*)',),
        field=r'\b(\w+)(?:=|": "?)([-+.\w]+)',
        fields={
            "elapsed": "wall",
            "tokens": "wpb",
            "loss": "loss",
            "grad_norm": "gnorm",
        },
        checkpoint=r"\b(?:Preparing to save|Saved|saved) checkpoint\b",
        evaluation=r"\bvalid on '[^']{1,80}' subset\b|\| INFO \| valid \|",
        parser=FairseqParser,
    ),
)  # fmt: skip
