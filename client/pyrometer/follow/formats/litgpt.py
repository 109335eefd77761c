"""litgpt, ``pretrain`` and ``finetune``: a line every ``log_interval`` micro-batches.

`Epoch 1 | iter 8 step 2 | loss train: 10.932, val: n/a | iter time: 320.45 ms (step) remaining time: 0:10:17`. The time
is that of one micro-batch, so those between two lines marked ``(step)`` are added up. Until 2023 the line was
`iter 77 step 39: loss 10.8259, iter time: 214.40ms (optimizer.step)`.
"""

from __future__ import annotations

import re

from pyrometer.follow.log_line import NUMBER, Format, LoggedPause, LoggedStep, parse_number, parse_step

_LINE = re.compile(
    rf"\biter (\d+) step (\d+)(?: \| loss train:|: loss) ({NUMBER}|nan), .*?iter time: ({NUMBER}) ?ms"
    r"( \((?:optimizer\.)?step\))?"
)
_EVAL = re.compile(r"\biter \d+: val loss\b")
_CHECKPOINT = re.compile(r"\bSaving checkpoint to\b")


class LitgptParser:
    """Adds up the micro-batches of a step; if lines are missing, the time of the step is unknown."""

    def __init__(self) -> None:
        self._last = 0
        self._sum: float | None = None

    def feed(self, line: str) -> LoggedStep | LoggedPause | None:
        """See :class:`~pyrometer.follow.log_line.Parser`."""
        match = _LINE.search(line)
        iteration, step = (parse_step(match[1]), parse_step(match[2])) if match else (None, None)
        if match is None or iteration is None or step is None:
            return _pause(line)
        self._add(iteration, (parse_number(match[4]) or 0.0) / 1e3)
        if not match[5]:
            return None
        seconds, self._sum = self._sum, 0.0
        return LoggedStep(step, seconds=seconds, loss=parse_number(match[3]))

    def _add(self, iteration: int, seconds: float) -> None:
        if iteration == self._last:
            return  # another rank's
        follows = iteration == self._last + 1
        self._last = iteration
        self._sum = self._sum + seconds if follows and self._sum is not None else (seconds if iteration == 1 else None)


def _pause(line: str) -> LoggedPause | None:
    if _EVAL.search(line):
        return LoggedPause("eval")
    return LoggedPause("checkpoint") if _CHECKPOINT.search(line) else None


FORMAT = Format("litgpt", "palm", LitgptParser, ("Epoch ", "| iter ", " step ", "loss train:", "iter time:"))
