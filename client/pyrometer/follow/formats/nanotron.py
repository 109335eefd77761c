"""nanotron. Its numbers have three digits (``8.79K``): too coarse for a drop of one percent.

`12/21 01:39:51 [INFO|DP=0|TP=0|lrdn0007]: iteration: 211364 / 1500000 | consumed_tokens: 480B | time_per_iteration_ms:
8.79K | tokens_per_sec_per_gpu: 699 | global_batch_size: 1.6M | grad_norm: 0.112 | lm_loss: 2.04 | model_tflops_per_gpu:
15.4 | eta: 131 days, 1:45:39` (one line, shortened); older ones have ``elapsed_time_per_iteration_ms``.
``global_batch_size`` is in tokens.
"""

from __future__ import annotations

import re

from pyrometer.follow.logged import Format, Logged, Notice, first, piped, scaled, whole

_LINE = re.compile(r"\]: iteration: (\d+) / \d+ \|(.*)")
_CHECKPOINT = re.compile(r"\]: Saving checkpoint at\b")


class NanotronParser:
    """See :class:`Parser`."""

    def feed(self, line: str) -> Logged | Notice | None:
        """See :class:`Parser`."""
        found = _LINE.search(line)
        step = whole(found[1]) if found else None
        if found is None or step is None:
            return Notice("checkpoint") if _CHECKPOINT.search(line) else None
        fields = piped(found[2])
        return Logged(
            step,
            seconds=scaled(first(fields, "time_per_iteration_ms", "elapsed_time_per_iteration_ms"), 1e-3),
            tokens=first(fields, "global_batch_size"),
            gpu_tokens_per_second=first(fields, "tokens_per_sec_per_gpu"),
            teraflops=first(fields, "model_tflops_per_gpu"),
            loss=first(fields, "lm_loss"),
            grad_norm=first(fields, "grad_norm"),
        )


FORMAT = Format("nanotron", "korthikanti", NanotronParser)
