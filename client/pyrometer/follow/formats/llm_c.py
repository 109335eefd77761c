"""llm.c: one line per step.

`step   61/74 | loss 3.208939 (+nanz)| norm 1.4800 (+nanz)| lr 3.00e-04 | 44.57 ms | -100.0% bf16 MFU | 91886 tok/s`:
``train_gpt2.cu`` of karpathy/llm.c. Its ``train_gpt2.py`` prints `step    1/10 | train loss 5.2 | norm 30.2 | lr
1.0e-04 | (133.24 ms | 30742 tok/s)` (one line), ``train_gpt2_fp32.cu``, as both did at first, `step    1/37: train
loss 4.36 (133.24 ms, 30742 tok/s)`. The rate is smoothed, so the tokens of a step are those that the log prints at its
start. The MFU is negative on a GPU that it doesn't know.
"""

from __future__ import annotations

import re

from pyrometer.follow.log_line import NUMBER, Format, LoggedPause, LoggedStep, parse_number, parse_step

_LINE = re.compile(rf"^step +(\d+)(?:/\d+ \||/\d+:) (?:train )?loss ({NUMBER}|-?nan)\b(.*)")
_TIME = re.compile(rf"[(|] ?({NUMBER}) ms\b")
_NORM = re.compile(rf"\| norm ({NUMBER}) ")
_MFU = re.compile(rf"\| ({NUMBER})% \w+ MFU")
_BATCH = re.compile(r"\btotal_batch_size=(\d+)$|^total desired batch size: (\d+)$")
_EVAL = re.compile(r"^val loss \S+$")
_CHECKPOINT = re.compile(r"^Writing (?:model|state) to ")


class LlmCParser:
    """Remembers the tokens of a step, which the log prints before the first."""

    def __init__(self) -> None:
        self._tokens: float | None = None

    def feed(self, line: str) -> LoggedStep | LoggedPause | None:
        """See :class:`~pyrometer.follow.log_line.Parser`."""
        match = _LINE.match(line)
        step = parse_step(match[1]) if match else None
        if match is None or step is None:
            if (batch := _BATCH.search(line)) is not None:
                self._tokens = parse_number(batch[1] or batch[2])
            if _CHECKPOINT.match(line):
                return LoggedPause("checkpoint")
            return LoggedPause("eval") if _EVAL.match(line) else None
        time, norm, mfu = _TIME.search(match[3]), _NORM.search(match[3]), _MFU.search(match[3])
        milliseconds = parse_number(time[1]) if time else None
        percent = parse_number(mfu[1]) if mfu else None
        if milliseconds is None:
            return None
        return LoggedStep(
            step,
            seconds=milliseconds / 1e3,
            tokens=self._tokens,
            mfu=percent / 100 if percent is not None and percent >= 0 else None,
            loss=parse_number(match[2]),
            grad_norm=parse_number(norm[1]) if norm else None,
        )


FORMAT = Format("llm.c", "palm", LlmCParser, ("step ", "loss ", " ms", "tok/s"))
