"""Megatron-DeepSpeed, as BLOOM was trained with it: seconds a step, TFLOPs with the recompute counted in.

`[default7]: iteration    85376/  115311 | consumed samples:    158692272 | consumed tokens: 325001773056 | elapsed time
per iteration (s): 104.70 | global batch size:  2048 | lm loss: 1.979558E+00 | grad norm: 0.132 | samples per second:
19.561 | TFLOPs: 149.77 |` (one line). A newer fork has milliseconds, ``actual seqlen`` and tokens per GPU and second.
``samples per second`` is left alone: some logs have it wrong by a factor of 1,000.
"""

from __future__ import annotations

from pyrometer.follow.formats.megatron import notice_of, seconds_of, step_of
from pyrometer.follow.logged import Format, Logged, Notice, first


class MegatronDeepSpeedParser:
    """See :class:`Parser`."""

    def feed(self, line: str) -> Logged | Notice | None:
        """See :class:`Parser`."""
        found = step_of(line)
        if found is None:
            return notice_of(line)
        step, fields = found
        if "TFLOPs" not in fields and "samples per second" not in fields:
            return None
        return Logged(
            step,
            seconds=seconds_of(fields),
            samples=first(fields, "global batch size"),
            sequence=first(fields, "actual seqlen", "seqlen"),
            gpu_tokens_per_second=first(fields, "tokens per gpu per second (tgs)"),
            teraflops=first(fields, "TFLOPs"),
            loss=first(fields, "lm loss"),
            grad_norm=first(fields, "grad norm"),
        )


FORMAT = Format("megatron-deepspeed", "bloom_hw", MegatronDeepSpeedParser)
