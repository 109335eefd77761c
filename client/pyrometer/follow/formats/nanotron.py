"""nanotron. Its numbers have three digits (``8.79K``), too coarse to show a drop of one percent.

`12/21 01:39:51 [INFO|DP=0|TP=0|lrdn0007]: iteration: 211364 / 1500000 | consumed_tokens: 480B | time_per_iteration_ms:
8.79K | tokens_per_sec_per_gpu: 699 | global_batch_size: 1.6M | grad_norm: 0.112 | lm_loss: 2.04 | model_tflops_per_gpu:
15.4 | eta: 131 days, 1:45:39` (one line, shortened); older versions print ``elapsed_time_per_iteration_ms``.
``global_batch_size`` is in tokens.
"""

from __future__ import annotations

import re

from pyrometer.follow.log_line import Format, LoggedPause, LoggedStep, first_number, parse_step, scale, split_fields

_LINE = re.compile(r"\]: iteration: (\d+) / \d+ \|(.*)")
_CHECKPOINT = re.compile(r"\]: Saving checkpoint at\b")


class NanotronParser:
    """Parses nanotron's lines one by one."""

    def feed(self, line: str) -> LoggedStep | LoggedPause | None:
        """See :class:`~pyrometer.follow.log_line.Parser`."""
        match = _LINE.search(line)
        step = parse_step(match[1]) if match else None
        if match is None or step is None:
            return LoggedPause("checkpoint") if _CHECKPOINT.search(line) else None
        fields = split_fields(match[2])
        return LoggedStep(
            step,
            seconds=scale(first_number(fields, "time_per_iteration_ms", "elapsed_time_per_iteration_ms"), 1e-3),
            tokens=first_number(fields, "global_batch_size"),
            gpu_tokens_per_second=first_number(fields, "tokens_per_sec_per_gpu"),
            teraflops=first_number(fields, "model_tflops_per_gpu"),
            loss=first_number(fields, "lm_loss"),
            grad_norm=first_number(fields, "grad_norm"),
        )


FORMAT = Format(
    "nanotron",
    "korthikanti",
    NanotronParser,
    ("iteration: ", "time_per_iteration_ms", "tokens_per_sec_per_gpu", "lm_loss"),
)
