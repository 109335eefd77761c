"""torchtitan, every ``metrics.log_freq`` steps; every rank in LOG_RANK prints, in colour.

`[rank0]:[titan] 2026-02-24 19:46:17,508 - root - INFO - step:  4  loss:  7.62585  grad_norm: 26.6250  memory: 66GiB
tps: 10,050  tflops: 314.69  mfu: 13.99%` (one line). ``tps`` is tokens a second of one GPU; ``mfu`` is
N/A under float8, and against an A100's peak on a GPU that it doesn't know.
"""

from __future__ import annotations

import re

from pyrometer.follow.logged import Format, Logged, Notice, number, whole

_LINE = re.compile(r"(?:^|\s|- )step:\s*(\d+)\s+loss:\s*(\S+)(.*)")
_FIELD = re.compile(r"\b(grad_norm|tps|tflops|mfu):\s*(\S+)")
_EVAL = re.compile(r"\bvalidate step:")
_CHECKPOINT = re.compile(r"\bSaving the checkpoint\b")


class TorchtitanParser:
    """See :class:`Parser`."""

    def feed(self, line: str) -> Logged | Notice | None:
        """See :class:`Parser`."""
        if _EVAL.search(line):
            return Notice("eval")
        found = _LINE.search(line)
        step = whole(found[1]) if found else None
        if found is None or step is None:
            return Notice("checkpoint") if _CHECKPOINT.search(line) else None
        fields = {key: number(value) for key, value in _FIELD.findall(found[3])}
        if "tps" not in fields:
            return None
        return Logged(
            step,
            gpu_tokens_per_second=fields.get("tps"),
            teraflops=fields.get("tflops"),
            mfu=fields.get("mfu"),
            loss=number(found[2]),
            grad_norm=fields.get("grad_norm"),
        )


FORMAT = Format("torchtitan", "palm", TorchtitanParser)
