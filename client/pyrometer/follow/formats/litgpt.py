"""litgpt, ``pretrain`` and ``finetune``: a line every ``log_interval`` micro-batches.

`Epoch 1 | iter 8 step 2 | loss train: 10.932, val: n/a | iter time: 320.45 ms (step) remaining time: 0:10:17`. The time
is that of one micro-batch, so those between two lines marked ``(step)`` are added up. Until 2023 the line was
`iter 77 step 39: loss 10.8259, iter time: 214.40ms (optimizer.step)`.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyrometer.follow.line_format import LineParser, Row
from pyrometer.follow.log_line import LoggedStep, parse_step


class LitgptParser(LineParser):
    """Adds up the micro-batches of a step; if lines are missing, the time of the step is unknown."""

    def __init__(self, row: Row) -> None:
        super().__init__(row)
        self._last = 0
        self._sum: float | None = None

    def finish(self, step: LoggedStep, texts: Mapping[str, str]) -> LoggedStep | None:
        """See :class:`~pyrometer.follow.line_format.LineParser`."""
        iteration = parse_step(texts["iteration"])
        if iteration is None:
            return None
        self._add(iteration, step.seconds or 0.0)
        if not texts["end"]:
            return None
        seconds, self._sum = self._sum, 0.0
        return step._replace(seconds=seconds)

    def _add(self, iteration: int, seconds: float) -> None:
        if iteration == self._last:
            return  # another rank's
        follows = iteration == self._last + 1
        self._last = iteration
        self._sum = self._sum + seconds if follows and self._sum is not None else (seconds if iteration == 1 else None)


FORMATS = (
    Row(
        "litgpt", "palm", ("Epoch ", "| iter ", " step ", "loss train:", "iter time:"),
        (
            (
                r"\biter (?P<iteration>\d+) step <step>(?: \| loss train:|: loss) <loss>, "
                r".*?iter time: <milliseconds> ?ms(?P<end> \((?:optimizer\.)?step\))?"
            ),
        ),
        checkpoint=r"\bSaving checkpoint to\b",
        evaluation=r"\biter \d+: val loss\b",
        parser=LitgptParser,
    ),
)  # fmt: skip
