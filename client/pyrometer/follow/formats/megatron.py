"""Megatron-LM, ``training_log``: one line every ``--log-interval`` steps, mean values of the interval.

` [2026-04-28 14:23:45.123456] iteration       42/    500 | consumed samples:        10752 | elapsed time per iteration
(ms): 892.1 | throughput per GPU (TFLOP/s/GPU): 245.3 | global batch size:   256 | lm loss: 3.214500E+00 | grad norm:
0.543 |` (one line). Its forks add fields; the throughput is there with ``--log-throughput`` only.
"""

from __future__ import annotations

import re

from pyrometer.follow.logged import Format, Logged, Notice, first, piped, scaled, whole

_LINE = re.compile(r"\biteration[ =:]+(\d+)/\s*\d+\s*\|(.*)")
_CHECKPOINT = re.compile(r"\b(?:saving|successfully saved) checkpoint (?:at|from) iteration\b")
_EVAL = re.compile(r"\bvalidation loss at iteration\b")
# BLOOM's fork, which has a file of its own, prints these; Megatron-LM never did.
_NOT_OURS = ("TFLOPs", "samples per second")


def step_of(line: str) -> tuple[int, dict[str, str]] | None:
    """Number and fields of a step's line. NeMo's begins alike; the time of an iteration is Megatron's alone."""
    found = _LINE.search(line)
    step = whole(found[1]) if found and "elapsed time per iteration" in line else None
    return None if found is None or step is None else (step, piped(found[2]))


def notice_of(line: str) -> Notice | None:
    """What Megatron and its forks say between steps."""
    if _CHECKPOINT.search(line):
        return Notice("checkpoint")
    return Notice("eval") if _EVAL.search(line) else None


def seconds_of(fields: dict[str, str]) -> float | None:
    """The time of one step: newer lines give milliseconds, older ones and BLOOM's seconds."""
    printed = scaled(first(fields, "elapsed time per iteration (ms)"), 1e-3)
    return first(fields, "elapsed time per iteration (s)") if printed is None else printed


class MegatronParser:
    """See :class:`Parser`."""

    def feed(self, line: str) -> Logged | Notice | None:
        """See :class:`Parser`."""
        found = step_of(line)
        if found is None:
            return notice_of(line)
        step, fields = found
        if any(name in fields for name in _NOT_OURS):
            return None
        return Logged(
            step,
            seconds=seconds_of(fields),
            samples=first(fields, "global batch size"),
            gpu_tokens_per_second=first(fields, "tokens/sec/GPU"),
            teraflops=first(fields, "throughput per GPU (TFLOP/s/GPU)"),
            loss=first(fields, "lm loss"),
            grad_norm=first(fields, "grad norm"),
        )


FORMAT = Format("megatron", "megatron", MegatronParser)
