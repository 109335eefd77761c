"""OLMo-core: a block of lines every ``metrics_log_interval``.

`[step=10/715255,epoch=1,eta=9d 4h]` and below it `    throughput/device/TPS=12,345`, one value a line:
``console_logger.py`` of allenai/OLMo-core at fa6c501. OLMo 1 (``train.py`` of allenai/OLMo) has `[step=10/715255]` and
`    throughput/device/tokens_per_second=12,345`. Values are of the last step; ``(actual avg)`` are means since the
start.
"""

from __future__ import annotations

import re

from pyrometer.follow.log_line import Format, LoggedPause, LoggedStep, parse_number, parse_step

_HEAD = re.compile(r"\[step=(\d+)/[^,\]]*(?:,[^\]]*)?\]\s*$")
_VALUE = re.compile(r"^\s+([\w/ .()%-]+)=(\S+)$")
_OLMO_1_RATE = "throughput/device/tokens_per_second"
_EVAL = re.compile(r"\[eval=|\beval_step=")
_CHECKPOINT = re.compile(r"\bSaving (?:\w+ )?checkpoint\b")


class OlmoCoreParser:
    """Collects the values of a block, which ends with the first other line, at the latest with the head of the next."""

    def __init__(self) -> None:
        self._step: int | None = None
        self._values: dict[str, float] = {}

    def feed(self, line: str) -> LoggedStep | LoggedPause | None:
        """See :class:`~pyrometer.follow.log_line.Parser`."""
        if self._step is not None and (match := _VALUE.match(line)) is not None:
            value = parse_number(match[2])
            if value is not None:
                self._values[match[1]] = value
            return None
        step, self._step = self._finish_block(), None
        if (head := _HEAD.search(line)) is not None:
            self._step, self._values = parse_step(head[1]), {}
        return step or _pause(line)

    def _finish_block(self) -> LoggedStep | None:
        values = self._values
        if self._step is None or not values:
            return None  # a line of progress alone
        batches = values.get("throughput/device/BPS") or values.get("throughput/device/batches_per_second")
        loss = values.get("train/CE loss")
        mfu = values.get("throughput/device/MFU")
        return LoggedStep(
            self._step,
            seconds=1 / batches if batches else None,
            gpu_tokens_per_second=values.get("throughput/device/TPS") or values.get(_OLMO_1_RATE),
            mfu=None if mfu is None else mfu / 100,
            loss=values.get("train/CrossEntropyLoss") if loss is None else loss,
            grad_norm=values.get("optim/total grad norm", values.get("optim/total_grad_norm")),
        )


def _pause(line: str) -> LoggedPause | None:
    if _EVAL.search(line):
        return LoggedPause("eval")
    return LoggedPause("checkpoint") if _CHECKPOINT.search(line) else None


FORMAT = Format("olmo-core", "", OlmoCoreParser, ("[step=", ",epoch=", "throughput/device/", "train/CE loss"))
