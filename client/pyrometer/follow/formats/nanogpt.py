"""nanoGPT: a line every ``log_interval`` steps.

`iter 100: loss 3.1234, time 135.12ms, mfu 37.14%`. The time is that of this one step; the MFU is smoothed, against an
A100's peak on every GPU, and -100.00% until it is known.
"""

from __future__ import annotations

import re

from pyrometer.follow.logged import NUMBER, Format, Logged, Notice, number, scaled, whole

_LINE = re.compile(rf"^iter (\d+): loss ({NUMBER}|nan), time ({NUMBER})ms(?:, mfu ({NUMBER})%)?")
_EVAL = re.compile(r"^step \d+: train loss \S+, val loss ")
_CHECKPOINT = re.compile(r"^saving checkpoint to ")


class NanogptParser:
    """See :class:`Parser`."""

    def feed(self, line: str) -> Logged | Notice | None:
        """See :class:`Parser`."""
        found = _LINE.match(line)
        step = whole(found[1]) if found else None
        if found is None or step is None:
            if _CHECKPOINT.match(line):
                return Notice("checkpoint")
            return Notice("eval") if _EVAL.match(line) else None
        mfu = scaled(number(found[4] or ""), 0.01)
        return Logged(
            step,
            seconds=scaled(number(found[3]), 1e-3),
            mfu=mfu if mfu is not None and mfu >= 0 else None,
            loss=number(found[2]),
        )


FORMAT = Format("nanogpt", "palm", NanogptParser)
