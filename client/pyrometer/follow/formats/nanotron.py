"""nanotron. Its numbers have three digits (``8.79K``), too coarse to show a drop of one percent.

`12/21 01:39:51 [INFO|DP=0|TP=0|lrdn0007]: iteration: 211364 / 1500000 | consumed_tokens: 480B | time_per_iteration_ms:
8.79K | tokens_per_sec_per_gpu: 699 | global_batch_size: 1.6M | grad_norm: 0.112 | lm_loss: 2.04 | model_tflops_per_gpu:
15.4 | eta: 131 days, 1:45:39` (one line, shortened); older versions print ``elapsed_time_per_iteration_ms``.
``global_batch_size`` is in tokens, and in sequences in the older versions: ``tokens_per_sec`` tells them apart.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyrometer.follow.line_format import LineParser, Row
from pyrometer.follow.log_line import LoggedStep

_ROUNDING = 0.05


class NanotronParser(LineParser):
    """Finds out whether the batch is in tokens: then it is what the rate makes in one step, but for three digits."""

    def finish(self, step: LoggedStep, texts: Mapping[str, str]) -> LoggedStep:
        """See :class:`~pyrometer.follow.line_format.LineParser`."""
        batch, rate, seconds = step.samples, step.tokens_per_second, step.seconds
        if batch and rate and seconds:
            in_tokens = abs(rate * seconds / batch - 1) < _ROUNDING
        else:
            in_tokens = "time_per_iteration_ms" in texts
        step = step._replace(tokens_per_second=None)
        return step._replace(samples=None, tokens=batch) if in_tokens else step


FORMATS = (
    Row(
        "nanotron", "korthikanti", ("iteration: ", "time_per_iteration_ms", "tokens_per_sec_per_gpu", "lm_loss"),
        (r"\]: iteration: <step> / \d+ \|<fields>",),
        fields={
            "milliseconds": ("time_per_iteration_ms", "elapsed_time_per_iteration_ms"),
            "samples": "global_batch_size",
            "tokens_per_second": "tokens_per_sec",
            "gpu_tokens_per_second": "tokens_per_sec_per_gpu",
            "teraflops": "model_tflops_per_gpu",
            "loss": "lm_loss",
            "grad_norm": "grad_norm",
        },
        checkpoint=r"\]: Saving checkpoint at\b",
        parser=NanotronParser,
    ),
)  # fmt: skip
