"""NeMo and Megatron-Bridge: a line for each step.

`Training epoch 0, iteration 45/99 | lr: 6.897e-06 | global_batch_size: 128 | global_step: 45 |
reduced_train_loss: 11.96 | train_step_timing in s: 6.08 | TFLOPS_per_GPU: 1.249e+03 |` (one line, shortened).
"""

from __future__ import annotations

import re

from pyrometer.follow.logged import Format, Logged, Notice, first, piped, whole

_LINE = re.compile(r"\bTraining epoch \d+, iteration (\d+)/\d+ \|(.*)")
_CHECKPOINT = re.compile(r"\bScheduled async checkpoint save\b|\bGlobal Checkpoint Save\b")
_EVAL = re.compile(r"\bValidation(?: DataLoader \d+)?:")


class NemoParser:
    """See :class:`Parser`."""

    def feed(self, line: str) -> Logged | Notice | None:
        """See :class:`Parser`."""
        found = _LINE.search(line)
        if found is None:
            if _CHECKPOINT.search(line):
                return Notice("checkpoint")
            return Notice("eval") if _EVAL.search(line) else None
        fields = piped(found[2])
        global_step = fields.get("global_step", "")
        step = whole(global_step if global_step.isdecimal() else found[1])
        if step is None:
            return None
        return Logged(
            step,
            seconds=first(fields, "train_step_timing in s"),
            samples=first(fields, "global_batch_size"),
            teraflops=first(fields, "TFLOPS_per_GPU"),
            loss=first(fields, "reduced_train_loss"),
            grad_norm=first(fields, "grad_norm"),
        )


FORMAT = Format("nemo", "megatron", NemoParser)
