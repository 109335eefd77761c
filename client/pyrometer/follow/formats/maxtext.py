"""MaxText: one line per step, of the last step that the device has finished.

`completed step: 3, seconds: 11.715, TFLOP/s/device: 193.354, Tokens/s/device: 4195.595, total_weights: 1572864, loss:
9.774` (one line): ``metric_logger.py`` of AI-Hypercomputer/maxtext; at e591f30 it ends in ``lm_loss: 9.774, perplexity:
17570.7``, and in 2023 it had ``TFLOP/s: 36.722`` alone. The first steps are timed without the device: ``seconds:
0.002`` beside ``12.444``.
"""

from __future__ import annotations

import re

from pyrometer.follow.log_line import Format, LoggedPause, LoggedStep, first_number, parse_step, split_fields

_LINE = re.compile(r"\bcompleted step: (\d+), (.*)")
_EVAL = re.compile(r"\beval metrics after step:|\bCompleted eval step\b", re.IGNORECASE)
_CHECKPOINT = re.compile(r"\b(?:saved a checkpoint at step|Started an asynchronous checkpoint save)\b", re.IGNORECASE)


class MaxtextParser:
    """Parses MaxText's lines one by one."""

    def feed(self, line: str) -> LoggedStep | LoggedPause | None:
        """See :class:`~pyrometer.follow.log_line.Parser`."""
        match = _LINE.search(line)
        step = parse_step(match[1]) if match else None
        if match is None or step is None:
            if _CHECKPOINT.search(line):
                return LoggedPause("checkpoint")
            return LoggedPause("eval") if _EVAL.search(line) else None
        fields = split_fields(match[2].replace(", ", "|"))
        return LoggedStep(
            step,
            seconds=first_number(fields, "seconds"),
            gpu_tokens_per_second=first_number(fields, "Tokens/s/device"),
            teraflops=first_number(fields, "TFLOP/s/device", "TFLOP/s"),
            loss=first_number(fields, "loss"),
        )


FORMAT = Format(
    "maxtext", "megatron", MaxtextParser, ("completed step:", "seconds:", "TFLOP/s/device:", "Tokens/s/device:")
)
