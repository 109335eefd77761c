"""NeMo and Megatron-Bridge: one line per step.

`Training epoch 0, iteration 45/99 | lr: 6.897e-06 | global_batch_size: 128 | global_step: 45 |
reduced_train_loss: 11.96 | train_step_timing in s: 6.08 | TFLOPS_per_GPU: 1.249e+03 |` (one line, shortened). NeMo 1
has a bar, `Epoch 0:   1%|  | 795/77225 [9:07:58<878:01:48, 41.36s/it, reduced_train_loss=3.090, global_step=794.0]`,
timed by its whole seconds. Its count begins again with the next epoch, which isn't read.
"""

from __future__ import annotations

import re

from pyrometer.follow.log_line import (
    NUMBER,
    Format,
    LoggedPause,
    LoggedStep,
    first_number,
    parse_clock,
    parse_number,
    parse_step,
    split_fields,
)

_LINE = re.compile(r"\bTraining epoch \d+, iteration (\d+)/\d+ \|(.*)")
_BAR = re.compile(rf"^Epoch 0: .*\| (\d+)/\d+ \[([\d:]+)<.*\breduced_train_loss=({NUMBER}|nan)\b")
_CHECKPOINT = re.compile(r"\bScheduled async checkpoint save\b|\bGlobal Checkpoint Save\b")
_EVAL = re.compile(r"\bValidation(?: DataLoader \d+)?:")


class NemoParser:
    """Parses NeMo's lines one by one."""

    def feed(self, line: str) -> LoggedStep | LoggedPause | None:
        """See :class:`~pyrometer.follow.log_line.Parser`."""
        match = _LINE.search(line)
        if match is None:
            if (bar := _BAR.match(line)) is not None and (step := parse_step(bar[1])) is not None:
                return LoggedStep(step, elapsed=parse_clock(bar[2]), loss=parse_number(bar[3]))
            if _CHECKPOINT.search(line):
                return LoggedPause("checkpoint")
            return LoggedPause("eval") if _EVAL.search(line) else None
        fields = split_fields(match[2])
        global_step = fields.get("global_step", "")
        step = parse_step(global_step if global_step.isdecimal() else match[1])
        if step is None:
            return None
        return LoggedStep(
            step,
            seconds=first_number(fields, "train_step_timing in s"),
            samples=first_number(fields, "global_batch_size"),
            gpu_tokens_per_second=first_number(fields, "tokens_per_sec_per_gpu"),
            teraflops=first_number(fields, "TFLOPS_per_GPU"),
            loss=first_number(fields, "reduced_train_loss"),
            grad_norm=first_number(fields, "grad_norm"),
        )


FORMAT = Format(
    "nemo", "megatron", NemoParser, ("Training epoch", "iteration ", "train_step_timing in s", "reduced_train_loss")
)
