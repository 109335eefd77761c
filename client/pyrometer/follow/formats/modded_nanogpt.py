"""modded-nanogpt: one line per step, with the time since the start without evaluations.

`step:2/1480 train_time:86ms step_avg:43.11ms` (``train_gpt.py`` of KellerJordan/modded-nanogpt since 2025), and before
`step:2/1530 train_loss:10.0645 train_time:31881ms step_avg:nanms`. ``step_avg`` is the mean since the start, which
hides a slow step: steps are timed by the difference of ``train_time``. The records before October 2024 have no times.
"""

from __future__ import annotations

import re

from pyrometer.follow.log_line import NUMBER, Format, LoggedPause, LoggedStep, parse_number, parse_step

_LINE = re.compile(rf"^step:(\d+)/\d+ (?:train_loss:(\S+) )?train_time:({NUMBER})(ms|s) step_avg:")
_EVAL = re.compile(r"^step:\d+/\d+ val_loss:")


class ModdedNanogptParser:
    """Parses modded-nanogpt's lines one by one."""

    def feed(self, line: str) -> LoggedStep | LoggedPause | None:
        """See :class:`~pyrometer.follow.log_line.Parser`."""
        match = _LINE.match(line)
        step = parse_step(match[1]) if match else None
        if match is None or step is None:
            return LoggedPause("eval") if _EVAL.match(line) else None
        elapsed = parse_number(match[3])
        per_second = 1e3 if match[4] == "ms" else 1.0
        return LoggedStep(
            step, elapsed=None if elapsed is None else elapsed / per_second, loss=parse_number(match[2] or "")
        )


FORMAT = Format("modded-nanogpt", "", ModdedNanogptParser, ("step:", "train_time:", "step_avg:"))
