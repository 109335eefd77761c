"""Megatron-DeepSpeed, with which BLOOM was trained: seconds per step, TFLOPs including the recompute.

`[default7]: iteration    85376/  115311 | consumed samples:    158692272 | consumed tokens: 325001773056 | elapsed time
per iteration (s): 104.70 | global batch size:  2048 | lm loss: 1.979558E+00 | grad norm: 0.132 | samples per second:
19.561 | TFLOPs: 149.77 |` (one line). A newer fork has milliseconds, ``actual seqlen`` and tokens per GPU and second.
``samples per second`` is ignored: in some logs it is wrong by a factor of 1,000.
"""

from __future__ import annotations

from pyrometer.follow.formats.megatron import parse_pause, parse_step_line, seconds_of
from pyrometer.follow.log_line import Format, LoggedPause, LoggedStep, first_number


class MegatronDeepSpeedParser:
    """Parses Megatron-DeepSpeed's lines one by one."""

    def feed(self, line: str) -> LoggedStep | LoggedPause | None:
        """See :class:`~pyrometer.follow.log_line.Parser`."""
        parsed = parse_step_line(line)
        if parsed is None:
            return parse_pause(line)
        step, fields = parsed
        if "TFLOPs" not in fields and "samples per second" not in fields:
            return None
        return LoggedStep(
            step,
            seconds=seconds_of(fields),
            samples=first_number(fields, "global batch size"),
            sequence=first_number(fields, "actual seqlen", "seqlen"),
            gpu_tokens_per_second=first_number(fields, "tokens per gpu per second (tgs)"),
            teraflops=first_number(fields, "TFLOPs"),
            loss=first_number(fields, "lm loss"),
            grad_norm=first_number(fields, "grad norm"),
        )


FORMAT = Format(
    "megatron-deepspeed",
    "bloom_hw",
    MegatronDeepSpeedParser,
    ("iteration", "elapsed time per iteration", "samples per second", "TFLOPs"),
)
