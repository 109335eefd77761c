"""Hugging Face's Trainer, 4 and 5: a dict every ``logging_steps``; number and time are in the progress bar only.

Version 4: `{'loss': 0.4532, 'grad_norm': 1.23, 'learning_rate': 2.8e-06, 'epoch': 2.83}`; version 5 quotes the numbers:
`{'loss': '5.072', 'grad_norm': '20.19', 'learning_rate': '0', 'epoch': '0.009302'}`. The bar: `  2%|▏| 1/60
[00:55<54:36, 55.53s/it]`; its rate is smoothed, so steps are timed by the time so far.
"""

from __future__ import annotations

import ast
import re

from pyrometer.follow.log_line import Format, LoggedPause, LoggedStep, parse_clock, parse_number, parse_step

_DICT = re.compile(r"\{'(?:loss|eval_loss|train_runtime)'.*\}")
# Bars with a name, such as "Map:  41%|", belong to tokenizers, downloads and shards; the Trainer's have none.
_NAMED = re.compile(r"\S:\s+\d+%\|")
_BAR = re.compile(r"\|\s*(\d+)/(\d+) \[([\d:]+)<")
_LONGEST_DICT = 10_000


class HuggingFaceParser:
    """Remembers the position of the training's progress bar; those of evaluations count to other totals."""

    def __init__(self) -> None:
        self._bars: dict[str, tuple[int, float]] = {}

    def feed(self, line: str) -> LoggedStep | LoggedPause | None:
        """See :class:`~pyrometer.follow.log_line.Parser`."""
        bar = None if _NAMED.search(line) else _BAR.search(line)
        if bar is not None and (step := parse_step(bar[1])) is not None:
            self._bars[bar[2]] = (step, parse_clock(bar[3]) or 0.0)
        match = _DICT.search(line)
        values = _parse_dict(match[0]) if match else {}
        if "eval_loss" in values:
            return LoggedPause("eval")
        if "loss" not in values:
            return None
        position = _position(values) or max(self._bars.values(), default=None, key=lambda bar: bar[1])
        if position is None:
            return None
        loss, grad_norm = parse_number(values["loss"]), parse_number(values.get("grad_norm", ""))
        return LoggedStep(position[0], elapsed=position[1] or None, loss=loss, grad_norm=grad_norm)


def _position(values: dict[str, str]) -> tuple[int, float] | None:
    """Return the step that ms-swift prints itself, ``'global_step/max_steps': '1/60'``, with an unknown time."""
    step, slash, _ = values.get("global_step/max_steps", "").partition("/")
    return (int(step), 0.0) if slash and step.isdecimal() and len(step) < 16 else None


def _parse_dict(text: str) -> dict[str, str]:
    if len(text) > _LONGEST_DICT:
        return {}
    try:
        values = ast.literal_eval(text.replace(": nan", ": None").replace(": inf", ": None"))
        return {str(key): str(value) for key, value in values.items()}
    except (ValueError, SyntaxError, AttributeError, MemoryError, RecursionError, TypeError):
        return {}


FORMATS = (Format("huggingface", "hf", HuggingFaceParser, ("'loss':", "'epoch':", "'learning_rate':")),)
