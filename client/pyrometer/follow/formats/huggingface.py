"""Hugging Face's Trainer, 4 and 5: a dict every ``logging_steps``; number and time stand in the progress bar only.

Version 4: `{'loss': 0.4532, 'grad_norm': 1.23, 'learning_rate': 2.8e-06, 'epoch': 2.83}`; version 5 quotes the numbers:
`{'loss': '5.072', 'grad_norm': '20.19', 'learning_rate': '0', 'epoch': '0.009302'}`. The bar: `  2%|▏| 1/60
[00:55<54:36, 55.53s/it]`, of which the rate is smoothed and the time so far is not.
"""

from __future__ import annotations

import ast
import re

from pyrometer.follow.logged import Format, Logged, Notice, number, whole

_DICT = re.compile(r"\{'(?:loss|eval_loss|train_runtime)'.*\}")
# The Trainer's bars have no name; those of tokenizers, downloads and shards do ("Map:  41%|").
_NAMED = re.compile(r"\S:\s+\d+%\|")
_BAR = re.compile(r"\|\s*(\d+)/(\d+) \[([\d:]+)<")
_LONGEST_DICT = 10_000


class HuggingFaceParser:
    """Remembers where the bar of the training stands; bars of evaluations count to other totals."""

    def __init__(self) -> None:
        self._bars: dict[str, tuple[int, float]] = {}

    def feed(self, line: str) -> Logged | Notice | None:
        """See :class:`Parser`."""
        bar = None if _NAMED.search(line) else _BAR.search(line)
        if bar is not None and (step := whole(bar[1])) is not None:
            self._bars[bar[2]] = (step, _clock(bar[3]))
        found = _DICT.search(line)
        values = _values(found[0]) if found else {}
        if "eval_loss" in values:
            return Notice("eval")
        if "loss" not in values:
            return None
        at = _where(values) or max(self._bars.values(), default=None, key=lambda bar: bar[1])
        return at and Logged(
            at[0], elapsed=at[1] or None, loss=number(values["loss"]), grad_norm=number(values.get("grad_norm", ""))
        )


def _where(values: dict[str, str]) -> tuple[int, float] | None:
    """ms-swift prints the step itself: ``'global_step/max_steps': '1/60'``."""
    step, slash, _ = values.get("global_step/max_steps", "").partition("/")
    return (int(step), 0.0) if slash and step.isdecimal() and len(step) < 16 else None


def _values(text: str) -> dict[str, str]:
    if len(text) > _LONGEST_DICT:
        return {}
    try:
        found = ast.literal_eval(text.replace(": nan", ": None").replace(": inf", ": None"))
        return {str(key): str(value) for key, value in found.items()}
    except (ValueError, SyntaxError, AttributeError, MemoryError, RecursionError, TypeError):
        return {}


def _clock(text: str) -> float:
    """``1:02:03`` in seconds."""
    seconds = 0
    for part in text.split(":"):
        seconds = seconds * 60 + int(part or 0)
    return float(seconds)


FORMAT = Format("huggingface", "hf", HuggingFaceParser)
