"""LLaMA-Factory's ``trainer_log.jsonl``, one object every ``logging_steps`` steps.

`{"current_steps": 3200, "total_steps": 3235, "loss": 4.4671, "learning_rate": 1.4e-08, "epoch": 0.99, "elapsed_time":
"5:13:22"}` (one line, shortened): ``train/callbacks.py`` of hiyouga/LlamaFactory; since 2024 it names ``lr`` and, with
``include_num_input_tokens_seen``, ``total_tokens``. Its throughput is the mean since the start, which hides a slow
step.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from pyrometer.follow.log_line import Format, LoggedPause, LoggedStep

_BEGINNING = '{"current_steps": '
_LONGEST = 10_000
_MAX_STEP = 10**15


class LlamaFactoryParser:
    """Takes the tokens of a step from the difference of two totals."""

    def __init__(self) -> None:
        self._last: tuple[int, float] | None = None

    def feed(self, line: str) -> LoggedStep | LoggedPause | None:
        """See :class:`~pyrometer.follow.log_line.Parser`."""
        values = _parse(line)
        step = values.get("current_steps")
        if not isinstance(step, int) or not 0 <= step < _MAX_STEP:
            return None
        if _number(values, "eval_loss") is not None:
            return LoggedPause("eval")
        if _number(values, "loss") is None:
            return None  # the end of training, or the progress of a prediction
        elapsed = _seconds(values.get("elapsed_time"))
        tokens = self._tokens(step, _number(values, "total_tokens"))
        return LoggedStep(step, elapsed=elapsed, tokens=tokens, loss=_number(values, "loss"))

    def _tokens(self, step: int, total: float | None) -> float | None:
        last, self._last = self._last, None if total is None else (step, total)
        if last is None or total is None or step <= last[0] or total <= last[1]:
            return None
        return (total - last[1]) / (step - last[0])


def _parse(line: str) -> dict[str, Any]:
    if not line.startswith(_BEGINNING) or len(line) > _LONGEST:
        return {}
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def _number(values: dict[str, Any], name: str) -> float | None:
    value = values.get(name)
    usable = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300
    return float(value) if usable else None  # type: ignore[arg-type]


def _seconds(text: object) -> float | None:
    """Parse ``5:13:22`` and ``1 day, 2:03:04``."""
    days, _, clock = text.rpartition(", ") if isinstance(text, str) else ("", "", "")
    parts = [days.split(" ")[0] or "0", *clock.split(":")]
    if len(parts) != 4 or not all(part.isdecimal() and len(part) < 6 for part in parts):
        return None
    day, hours, minutes, seconds = map(int, parts)
    return timedelta(days=day, hours=hours, minutes=minutes, seconds=seconds).total_seconds()


FORMAT = Format(
    "llama-factory", "", LlamaFactoryParser, ('"current_steps":', '"total_steps":', '"loss":', '"elapsed_time":')
)
