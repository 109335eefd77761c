"""litgpt, ``pretrain`` and ``finetune``: a line every ``log_interval`` micro-batches.

`Epoch 1 | iter 8 step 2 | loss train: 10.932, val: n/a | iter time: 320.45 ms (step) remaining time: 0:10:17`. The time
is that of one micro-batch, so steps are timed by the log itself: between the lines marked ``(step)``.
"""

from __future__ import annotations

import re

from pyrometer.follow.logged import NUMBER, Format, Logged, Notice, number, whole

_LINE = re.compile(rf"\biter (\d+) step (\d+) \| loss train: ({NUMBER}|nan), .*?iter time: ({NUMBER}) ms( \(step\))?")
_EVAL = re.compile(r"\biter \d+: val loss\b")
_CHECKPOINT = re.compile(r"\bSaving checkpoint to\b")


class LitgptParser:
    """Adds up the micro-batches of a step; where lines are left out, the sum isn't known and neither is the time."""

    def __init__(self) -> None:
        self._last = 0
        self._sum: float | None = None

    def feed(self, line: str) -> Logged | Notice | None:
        """See :class:`Parser`."""
        found = _LINE.search(line)
        iteration, step = (whole(found[1]), whole(found[2])) if found else (None, None)
        if found is None or iteration is None or step is None:
            return _notice(line)
        self._add(iteration, (number(found[4]) or 0.0) / 1e3)
        if not found[5]:
            return None
        seconds, self._sum = self._sum, 0.0
        return Logged(step, seconds=seconds, loss=number(found[3]))

    def _add(self, iteration: int, seconds: float) -> None:
        follows = iteration == self._last + 1
        self._last = iteration
        self._sum = self._sum + seconds if follows and self._sum is not None else (seconds if iteration == 1 else None)


def _notice(line: str) -> Notice | None:
    if _EVAL.search(line):
        return Notice("eval")
    return Notice("checkpoint") if _CHECKPOINT.search(line) else None


FORMAT = Format("litgpt", "palm", LitgptParser)
