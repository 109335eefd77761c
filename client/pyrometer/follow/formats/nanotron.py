"""nanotron. Its numbers have three digits (``8.79K``), too coarse to show a drop of one percent.

`12/21 01:39:51 [INFO|DP=0|TP=0|lrdn0007]: iteration: 211364 / 1500000 | consumed_tokens: 480B | time_per_iteration_ms:
8.79K | tokens_per_sec_per_gpu: 699 | global_batch_size: 1.6M | grad_norm: 0.112 | lm_loss: 2.04 | model_tflops_per_gpu:
15.4 | eta: 131 days, 1:45:39` (one line, shortened); older versions print ``elapsed_time_per_iteration_ms``.
``global_batch_size`` is in tokens, and in sequences in the older versions: ``tokens_per_sec`` tells them apart.
"""

from __future__ import annotations

import re

from pyrometer.follow.log_line import Format, LoggedPause, LoggedStep, first_number, parse_step, scale, split_fields

_LINE = re.compile(r"\]: iteration: (\d+) / \d+ \|(.*)")
_CHECKPOINT = re.compile(r"\]: Saving checkpoint at\b")
_ROUNDING = 0.05


class NanotronParser:
    """Parses nanotron's lines one by one."""

    def feed(self, line: str) -> LoggedStep | LoggedPause | None:
        """See :class:`~pyrometer.follow.log_line.Parser`."""
        match = _LINE.search(line)
        step = parse_step(match[1]) if match else None
        if match is None or step is None:
            return LoggedPause("checkpoint") if _CHECKPOINT.search(line) else None
        fields = split_fields(match[2])
        seconds = scale(first_number(fields, "time_per_iteration_ms", "elapsed_time_per_iteration_ms"), 1e-3)
        batch, in_tokens = first_number(fields, "global_batch_size"), _is_in_tokens(fields, seconds)
        return LoggedStep(
            step,
            seconds=seconds,
            samples=None if in_tokens else batch,
            tokens=batch if in_tokens else None,
            gpu_tokens_per_second=first_number(fields, "tokens_per_sec_per_gpu"),
            teraflops=first_number(fields, "model_tflops_per_gpu"),
            loss=first_number(fields, "lm_loss"),
            grad_norm=first_number(fields, "grad_norm"),
        )


def _is_in_tokens(fields: dict[str, str], seconds: float | None) -> bool:
    """Return whether the batch is in tokens: then it is what the rate makes in one step, but for three digits each."""
    batch, rate = first_number(fields, "global_batch_size"), first_number(fields, "tokens_per_sec")
    if not (batch and rate and seconds):
        return "time_per_iteration_ms" in fields
    return abs(rate * seconds / batch - 1) < _ROUNDING


FORMAT = Format(
    "nanotron",
    "korthikanti",
    NanotronParser,
    ("iteration: ", "time_per_iteration_ms", "tokens_per_sec_per_gpu", "lm_loss"),
)
