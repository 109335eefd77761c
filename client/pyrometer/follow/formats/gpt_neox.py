"""GPT-NeoX: Megatron's line, with other names and the samples per second in front.

` samples/sec: 51.234 | iteration       10/      50 | elapsed time per iteration (ms): 9876.5 | learning rate:
1.234E-04 | approx flops per GPU: 150.3TFLOPS | lm_loss: 7.123456E+00 | loss scale: 1.0 |` (one line):
``megatron/logging.py`` of EleutherAI/gpt-neox at ea7aefd; 1.0 had it in ``megatron/training.py``. Its batch follows
from rate and time.
"""

from __future__ import annotations

import re

from pyrometer.follow.formats.megatron import parse_pause, parse_step_line, seconds_of
from pyrometer.follow.log_line import NUMBER, Format, LoggedPause, LoggedStep, first_number, parse_number

_RATE = re.compile(rf"\bsamples/sec: ({NUMBER}) \|")
_FLOPS = re.compile(rf"({NUMBER})\s*([GTP])FLOPS")
_TERA = {"G": 1e-3, "T": 1.0, "P": 1e3}


class GptNeoxParser:
    """Parses GPT-NeoX's lines one by one."""

    def feed(self, line: str) -> LoggedStep | LoggedPause | None:
        """See :class:`~pyrometer.follow.log_line.Parser`."""
        parsed = parse_step_line(line)
        if parsed is None:
            return LoggedPause("eval") if "validation results at iteration" in line else parse_pause(line)
        step, fields = parsed
        if "approx flops per GPU" not in fields:
            return None
        rate, seconds = _RATE.search(line), seconds_of(fields)
        samples = (parse_number(rate[1]) or 0.0) * (seconds or 0.0) if rate else 0.0
        return LoggedStep(
            step,
            seconds=seconds,
            samples=float(round(samples)) or None,
            teraflops=_teraflops(fields["approx flops per GPU"]),
            loss=first_number(fields, "lm_loss", "lm loss"),
            grad_norm=first_number(fields, "grad norm", "grad_norm"),
        )


def _teraflops(text: str) -> float | None:
    match = _FLOPS.fullmatch(text)
    value = parse_number(match[1]) if match else None
    return None if match is None or value is None else value * _TERA[match[2]]


FORMAT = Format(
    "gpt-neox", "", GptNeoxParser,
    ("samples/sec:", "iteration", "elapsed time per iteration", "approx flops per GPU", "lm_loss"),
)  # fmt: skip
