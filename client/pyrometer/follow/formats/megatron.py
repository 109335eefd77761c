"""Megatron-LM, ``training_log``: one line every ``--log-interval`` steps, with the means of the interval.

` [2026-04-28 14:23:45.123456] iteration       42/    500 | consumed samples:        10752 | elapsed time per iteration
(ms): 892.1 | throughput per GPU (TFLOP/s/GPU): 245.3 | global batch size:   256 | lm loss: 3.214500E+00 | grad norm:
0.543 |` (one line). Its forks add fields; Primus prints pairs of the last and the mean, ``(ms): 892.1/880.4``. The
throughput is printed with ``--log-throughput`` only.
"""

from __future__ import annotations

import re

from pyrometer.follow.log_line import Format, LoggedPause, LoggedStep, first_number, parse_step, scale, split_fields

_LINE = re.compile(r"\biteration[ =:]+(\d+)/\s*\d+\s*\|(.*)")
_CHECKPOINT = re.compile(r"\b(?:saving|successfully saved) checkpoint (?:at|from) iteration\b")
_EVAL = re.compile(r"\bvalidation loss at iteration\b")
# Fields of forks that have files of their own, BLOOM's and GPT-NeoX; Megatron-LM never printed them.
_FIELDS_OF_FORKS = ("TFLOPs", "samples per second", "approx flops per GPU")


def parse_step_line(line: str) -> tuple[int, dict[str, str]] | None:
    """Return number and fields of a step's line. NeMo's begins alike, but has no time of an iteration."""
    match = _LINE.search(line)
    step = parse_step(match[1]) if match and "elapsed time per iteration" in line else None
    return None if match is None or step is None else (step, split_fields(match[2]))


def parse_pause(line: str) -> LoggedPause | None:
    """Return the pause that Megatron and its forks announce between steps."""
    if _CHECKPOINT.search(line):
        return LoggedPause("checkpoint")
    return LoggedPause("eval") if _EVAL.search(line) else None


def seconds_of(fields: dict[str, str]) -> float | None:
    """Return the time of one step: newer lines have milliseconds, older ones and BLOOM's seconds."""
    printed = scale(first_number(fields, "elapsed time per iteration (ms)"), 1e-3)
    return first_number(fields, "elapsed time per iteration (s)") if printed is None else printed


class MegatronParser:
    """Parses Megatron-LM's lines one by one."""

    def feed(self, line: str) -> LoggedStep | LoggedPause | None:
        """See :class:`~pyrometer.follow.log_line.Parser`."""
        parsed = parse_step_line(line)
        if parsed is None:
            return parse_pause(line)
        step, fields = parsed
        if any(name in fields for name in _FIELDS_OF_FORKS):
            return None
        return LoggedStep(
            step,
            seconds=seconds_of(fields),
            samples=first_number(fields, "global batch size"),
            gpu_tokens_per_second=first_number(fields, "tokens/sec/GPU"),
            teraflops=first_number(fields, "throughput per GPU (TFLOP/s/GPU)"),
            loss=first_number(fields, "lm loss"),
            grad_norm=first_number(fields, "grad norm"),
        )


FORMAT = Format(
    "megatron", "megatron", MegatronParser, ("iteration", "elapsed time per iteration", "global batch size", "lm loss")
)
