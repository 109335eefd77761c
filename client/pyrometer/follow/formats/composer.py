"""Composer and llm-foundry: a block of lines each ``console_log_interval``.

`[batch=12/20]:` and below it `         Train throughput/device/tokens_per_sec: 7785.3322`, one value a line. The
throughputs are means over 100 batches, which hide a slow one; ``time/train`` (hours, without evaluation) doesn't.
"""

from __future__ import annotations

import re

from pyrometer.follow.logged import Format, Logged, Notice, number, scaled, whole

_HEAD = re.compile(r"^(?:\[epoch=\d+\])?\[batch=(\d+)(?:/\d+)?\]:")
_VALUE = re.compile(r"^\s*(Train|Eval) ([\w/.\-]+): (\S+)$")


class ComposerParser:
    """A block ends with the first line that isn't a value, at the latest with the head of the next."""

    def __init__(self) -> None:
        self._step: int | None = None
        self._values: dict[str, float] = {}

    def feed(self, line: str) -> Logged | Notice | None:
        """See :class:`Parser`."""
        found = _VALUE.match(line)
        if found is not None:
            return self._value(found[1], found[2], number(found[3]))
        ended, self._step = self._ended(), None
        head = _HEAD.match(line)
        if head is not None:
            self._step, self._values = whole(head[1]), {}
        return ended

    def _value(self, kind: str, name: str, value: float | None) -> Notice | None:
        if kind == "Eval":
            return Notice("eval")
        if value is not None:
            self._values[name] = value
        return None

    def _ended(self) -> Logged | None:
        if self._step is None or not self._values:
            return None
        get = self._values.get
        return Logged(
            self._step,
            elapsed=scaled(get("time/train"), 3600.0),
            gpu_tokens_per_second=get("throughput/device/tokens_per_sec"),
            samples_per_second=get("throughput/samples_per_sec"),
            teraflops=scaled(get("throughput/device/flops_per_sec"), 1e-12),
            mfu=get("throughput/device/mfu"),
            loss=get("loss/train/total"),
            grad_norm=get("l2_norm/grad/global"),
        )


FORMAT = Format("composer", "palm", ComposerParser)
