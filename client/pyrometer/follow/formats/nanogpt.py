"""nanoGPT: a line every ``log_interval`` steps.

`iter 100: loss 3.1234, time 135.12ms, mfu 37.14%`. The time is that of this one step; the MFU is smoothed, relative to
an A100's peak on every GPU, and -100.00% until it is known.
"""

from __future__ import annotations

import re

from pyrometer.follow.log_line import NUMBER, Format, LoggedPause, LoggedStep, parse_number, parse_step, scale

_LINE = re.compile(rf"^(?:\d[-\d]* [\d:.,]+ )?iter (\d+): loss ({NUMBER}|nan), time ({NUMBER})ms(?:, mfu ({NUMBER})%)?")
_EVAL = re.compile(r"^(?:\d[-\d]* [\d:.,]+ )?step \d+: train loss \S+, val loss ")
_CHECKPOINT = re.compile(r"^saving checkpoint to ")


class NanogptParser:
    """Parses nanoGPT's lines one by one."""

    def feed(self, line: str) -> LoggedStep | LoggedPause | None:
        """See :class:`~pyrometer.follow.log_line.Parser`."""
        match = _LINE.match(line)
        step = parse_step(match[1]) if match else None
        if match is None or step is None:
            if _CHECKPOINT.match(line):
                return LoggedPause("checkpoint")
            return LoggedPause("eval") if _EVAL.match(line) else None
        mfu = scale(parse_number(match[4] or ""), 0.01)
        return LoggedStep(
            step,
            seconds=scale(parse_number(match[3]), 1e-3),
            mfu=mfu if mfu is not None and mfu >= 0 else None,
            loss=parse_number(match[2]),
        )


FORMAT = Format("nanogpt", "palm", NanogptParser, ("iter ", "loss ", "time ", "ms"))
