"""torchtune: a progress bar, and with its loggers to disk or standard output one line per ``log_every_n_steps``.

`1|52|Loss: 2.3697006702423096:   0%|▏  | 52/25880 [00:24<3:55:01,  1.83it/s]` (epoch, step; the recipes of
pytorch/torchtune, from 0.1 to bd2a0fc), timed by the bar's whole seconds so far; `Step 52 | loss:2.36 lr:2e-05
tokens_per_second_per_gpu:1234.5 grad_norm:1.2` (one line, ``metric_logging.py``). Where both are printed, the second
counts, as it has the rate.
"""

from __future__ import annotations

import re

from pyrometer.follow.log_line import NUMBER, Format, LoggedPause, LoggedStep, parse_clock, parse_number, parse_step

_BAR = re.compile(rf"\b\d+\|(\d+)\|Loss: ({NUMBER}|nan):.*?\[([\d:]+)<")
_STEP = re.compile(r"^Step (\d+) \| (.*\bloss:.*)")
_FIELD = re.compile(r"\b([a-z_]+):(\S+)")
_CHECKPOINT = re.compile(r"\bSaving checkpoint\b|\bModel checkpoint of size\b")


class TorchtuneParser:
    """Parses torchtune's lines one by one."""

    def __init__(self) -> None:
        self._has_lines = False

    def feed(self, line: str) -> LoggedStep | LoggedPause | None:
        """See :class:`~pyrometer.follow.log_line.Parser`."""
        if (match := _STEP.match(line)) is not None and (step := parse_step(match[1])) is not None:
            self._has_lines = True
            fields = {key: parse_number(value) for key, value in _FIELD.findall(match[2])}
            rate = fields.get("tokens_per_second_per_gpu")
            return LoggedStep(
                step, gpu_tokens_per_second=rate, loss=fields.get("loss"), grad_norm=fields.get("grad_norm")
            )
        match = None if self._has_lines else _BAR.search(line)
        if match is not None and (step := parse_step(match[1])) is not None:
            return LoggedStep(step, elapsed=parse_clock(match[3]) or None, loss=parse_number(match[2]))
        return LoggedPause("checkpoint") if _CHECKPOINT.search(line) else None


FORMAT = Format("torchtune", "", TorchtuneParser, ("|Loss: ", "|", "it/s]"))
