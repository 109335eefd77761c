"""torchtitan: one line every ``metrics.log_freq`` steps, in colour, from every rank in LOG_RANK.

`[rank0]:[titan] 2026-02-24 19:46:17,508 - root - INFO - step:  4  loss:  7.62585  grad_norm: 26.6250  memory: 66GiB
tps: 10,050  tflops: 314.69  mfu: 13.99%` (one line). ``tps`` is tokens per second of one GPU; ``mfu`` is
N/A under float8, and relative to an A100's peak on a GPU that torchtitan doesn't know.
"""

from __future__ import annotations

import re

from pyrometer.follow.log_line import Format, LoggedPause, LoggedStep, parse_number, parse_step

_LINE = re.compile(r"(?:^|\s|- )step:\s*(\d+)\s+loss:\s*(\S+)(.*)")
_FIELD = re.compile(r"\b(grad_norm|tps|tflops|mfu):\s*(\S+)")
_EVAL = re.compile(r"\bvalidate step:")
_CHECKPOINT = re.compile(r"\bSaving the checkpoint\b")


class TorchtitanParser:
    """Parses torchtitan's lines one by one."""

    def feed(self, line: str) -> LoggedStep | LoggedPause | None:
        """See :class:`~pyrometer.follow.log_line.Parser`."""
        if _EVAL.search(line):
            return LoggedPause("eval")
        match = _LINE.search(line)
        step = parse_step(match[1]) if match else None
        if match is None or step is None:
            return LoggedPause("checkpoint") if _CHECKPOINT.search(line) else None
        fields = {key: parse_number(value) for key, value in _FIELD.findall(match[3])}
        if "tps" not in fields:
            return None
        return LoggedStep(
            step,
            gpu_tokens_per_second=fields.get("tps"),
            teraflops=fields.get("tflops"),
            mfu=fields.get("mfu"),
            loss=parse_number(match[2]),
            grad_norm=fields.get("grad_norm"),
        )


FORMAT = Format("torchtitan", "palm", TorchtitanParser, ("step:", "loss:", "tps:", "mfu:"))
