"""Composer and llm-foundry: a block of lines every ``console_log_interval``.

`[batch=12/20]:` and below it `         Train throughput/device/tokens_per_sec: 7785.3322`, one value a line. The
throughputs are means over 100 batches, which hide a slow one, so steps are timed by ``time/train`` (hours, without
evaluation).
"""

from __future__ import annotations

import re

from pyrometer.follow.log_line import Format, LoggedPause, LoggedStep, parse_number, parse_step, scale

_HEAD = re.compile(r"^(?:\[epoch=\d+\])?\[batch=(\d+)(?:/\d+)?\]:")
_VALUE = re.compile(r"^\s*(Train|Eval) ([\w/.\-]+): (\S+)$")


class ComposerParser:
    """Collects the values of a block, which ends with the first other line, at the latest with the head of the next."""

    def __init__(self) -> None:
        self._step: int | None = None
        self._values: dict[str, float] = {}

    def feed(self, line: str) -> LoggedStep | LoggedPause | None:
        """See :class:`~pyrometer.follow.log_line.Parser`."""
        match = _VALUE.match(line)
        if match is not None:
            return self._value(match[1], match[2], parse_number(match[3]))
        step, self._step = self._finish_block(), None
        head = _HEAD.match(line)
        if head is not None:
            self._step, self._values = parse_step(head[1]), {}
        return step

    def _value(self, kind: str, name: str, value: float | None) -> LoggedPause | None:
        if kind == "Eval":
            return LoggedPause("eval")
        if value is not None:
            self._values[name] = value
        return None

    def _finish_block(self) -> LoggedStep | None:
        if self._step is None or not self._values:
            return None
        get = self._values.get
        return LoggedStep(
            self._step,
            elapsed=scale(get("time/train"), 3600.0),
            gpu_tokens_per_second=get("throughput/device/tokens_per_sec"),
            samples_per_second=get("throughput/samples_per_sec"),
            teraflops=scale(get("throughput/device/flops_per_sec"), 1e-12),
            mfu=get("throughput/device/mfu"),
            loss=get("loss/train/total"),
            grad_norm=get("l2_norm/grad/global"),
        )


FORMAT = Format("composer", "llm_foundry", ComposerParser, ("[batch=", "Train ", "time/train"))
