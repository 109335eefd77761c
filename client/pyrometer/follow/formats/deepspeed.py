"""DeepSpeed, rank 0, every ``steps_per_print`` steps.

The engine: `[2023-12-29 13:02:49,647] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=0,
lr=[0.0003333333333333334], mom=[(0.9, 0.999)]` (one line), timed by its own clock. Its timer:
`[2023-11-07 01:55:23,714] [INFO] [timer.py:260:stop] epoch=0/micro_step=40/global_step=10,
RunningAvgSamplesPerSec=25.025771473496132, CurrSamplesPerSec=25.704280480541442, MemAllocated=4.32GB` (one line), or
`0/20, RunningAvgSamplesPerSec=...` in older versions; the pipeline engine `steps: 200 loss: 5.5508 iter time (s): 0.936
samples/sec: 136.706`. The timer's running average hides every slow step, so it is ignored.
"""

from __future__ import annotations

import re
from datetime import datetime, timezone

from pyrometer.follow.log_line import NUMBER, Format, LoggedPause, LoggedStep, parse_number, parse_step

_TIMER = re.compile(
    rf"(?:epoch=\d+/micro_step=\d+/global_step=|\b\d+/)(\d+), RunningAvgSamplesPerSec=\S+, CurrSamplesPerSec=({NUMBER})"
)
_PIPELINE = re.compile(
    rf"\bsteps: (\d+) loss: ({NUMBER}|nan)\b.{{0,200}}?\biter time \(s\): ({NUMBER}) samples/sec: ({NUMBER})"
)
# Bounded: a line of brackets alone would be tried from each of them to its end.
_ENGINE = re.compile(
    r"^\W{0,9}(?:(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),(\d{3})\])?.*\[Rank \d+\] step=(\d+), skipped=\d+, lr="
)
_CHECKPOINT = re.compile(r"\bSaving model checkpoint:|\bCheckpoint \S+ is about to be saved!")


class DeepSpeedParser:
    """Parses DeepSpeed's lines one by one."""

    def feed(self, line: str) -> LoggedStep | LoggedPause | None:
        """See :class:`~pyrometer.follow.log_line.Parser`."""
        if (match := _TIMER.search(line)) is not None:
            return _step(match[1], rate=match[2])
        if (match := _PIPELINE.search(line)) is not None:
            return _step(match[1], rate=match[4], seconds=match[3], loss=match[2])
        if (match := _ENGINE.search(line)) is not None and (number := parse_step(match[3])) is not None:
            return LoggedStep(number, elapsed=_clock(match[1], match[2]))
        return LoggedPause("checkpoint") if _CHECKPOINT.search(line) else None


def _step(step: str, rate: str, seconds: str = "", loss: str = "") -> LoggedStep | None:
    number = parse_step(step)
    if number is None:
        return None
    return LoggedStep(
        number, seconds=parse_number(seconds), samples_per_second=parse_number(rate), loss=parse_number(loss)
    )


def _clock(text: str | None, milliseconds: str | None) -> float | None:
    """Return the seconds of the line's own clock, which has no time zone: only differences count."""
    try:
        moment = datetime.strptime(text or "", "%Y-%m-%d %H:%M:%S").replace(tzinfo=timezone.utc)
    except ValueError:
        return None
    return moment.timestamp() + int(milliseconds or 0) / 1e3


# Trainers on DeepSpeed (GPT-NeoX, Hugging Face) print lines of their own, which say more, beside these.
FORMAT = Format("deepspeed", "", DeepSpeedParser, ("[Rank 0] step=", "skipped=", "SamplesPerSec="), lines=2)
