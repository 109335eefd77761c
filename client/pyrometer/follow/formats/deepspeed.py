"""DeepSpeed, rank 0, every ``steps_per_print`` steps.

`[2023-11-07 01:55:23,714] [INFO] [timer.py:260:stop] epoch=0/micro_step=40/global_step=10,
RunningAvgSamplesPerSec=25.025771473496132, CurrSamplesPerSec=25.704280480541442, MemAllocated=4.32GB` (one line), older
ones `0/20, RunningAvgSamplesPerSec=...`; the pipeline engine `steps: 200 loss: 5.5508 iter time (s): 0.936 samples/sec:
136.706`. The running average hides every slow step, so it isn't read.
"""

from __future__ import annotations

import re

from pyrometer.follow.logged import NUMBER, Format, Logged, Notice, number, whole

_TIMER = re.compile(
    rf"(?:epoch=\d+/micro_step=\d+/global_step=|\b\d+/)(\d+), RunningAvgSamplesPerSec=\S+, CurrSamplesPerSec=({NUMBER})"
)
_PIPELINE = re.compile(
    rf"\bsteps: (\d+) loss: ({NUMBER}|nan)\b.{{0,200}}?\biter time \(s\): ({NUMBER}) samples/sec: ({NUMBER})"
)
_CHECKPOINT = re.compile(r"\bSaving model checkpoint:|\bCheckpoint \S+ is about to be saved!")


class DeepSpeedParser:
    """See :class:`Parser`."""

    def feed(self, line: str) -> Logged | Notice | None:
        """See :class:`Parser`."""
        if (found := _TIMER.search(line)) is not None:
            return _logged(found[1], rate=found[2])
        if (found := _PIPELINE.search(line)) is not None:
            return _logged(found[1], rate=found[4], seconds=found[3], loss=found[2])
        return Notice("checkpoint") if _CHECKPOINT.search(line) else None


def _logged(step: str, rate: str, seconds: str = "", loss: str = "") -> Logged | None:
    at = whole(step)
    if at is None:
        return None
    return Logged(at, seconds=number(seconds), samples_per_second=number(rate), loss=number(loss))


FORMAT = Format("deepspeed", "", DeepSpeedParser)
