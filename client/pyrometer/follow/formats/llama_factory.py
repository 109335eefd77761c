"""LLaMA-Factory's ``trainer_log.jsonl``, one object every ``logging_steps`` steps.

`{"current_steps": 3200, "total_steps": 3235, "loss": 4.4671, "learning_rate": 1.4e-08, "epoch": 0.99, "elapsed_time":
"5:13:22"}` (one line, shortened): ``train/callbacks.py`` of hiyouga/LlamaFactory; since 2024 it names ``lr`` and, with
``include_num_input_tokens_seen``, ``total_tokens``. Its throughput is the mean since the start, which hides a slow
step. The last line, and those of a prediction, have no loss.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyrometer.follow.line_format import LineParser, Row
from pyrometer.follow.log_line import LoggedPause, LoggedStep

_LONGEST = 10_000


class LlamaFactoryParser(LineParser):
    """Takes the tokens of a step from the difference of two totals."""

    def __init__(self, row: Row) -> None:
        super().__init__(row)
        self._last: tuple[int, float] | None = None

    def feed(self, line: str) -> LoggedStep | LoggedPause | None:
        """See :class:`~pyrometer.follow.log_line.Parser`."""
        return super().feed(line) if _is_whole(line) else None

    def finish(self, step: LoggedStep, texts: Mapping[str, str]) -> LoggedStep:  # noqa: ARG002  as its base has it
        """See :class:`~pyrometer.follow.line_format.LineParser`."""
        total = step.tokens
        last, self._last = self._last, None if total is None else (step.step, total)
        if last is None or total is None or step.step <= last[0] or total <= last[1]:
            return step._replace(tokens=None)
        return step._replace(tokens=(total - last[1]) / (step.step - last[0]))


def _is_whole(line: str) -> bool:
    if not line.startswith('{"current_steps": ') or len(line) > _LONGEST:
        return False
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


FORMATS = (
    Row(
        "llama-factory", "", ('"current_steps":', '"total_steps":', '"loss":', '"elapsed_time":'),
        (r'^\{"current_steps": <step>, (?P<fields>.*"loss": (?=-?\d).*)\}\s*$',),
        field=r'"(\w+)": "?((?:[^",]|, (?=\d))*)',
        fields={
            "clock": "elapsed_time",
            "tokens": "total_tokens",
            "loss": "loss",
        },
        evaluation=r'^\{"current_steps": \d+, .*"eval_loss": -?\d',
        parser=LlamaFactoryParser,
    ),
)  # fmt: skip
