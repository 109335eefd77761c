"""verl: one line per step, of its names and values joined by `` - ``.

`step:1 - actor/pg_loss:0.000 - actor/grad_norm:2.060 - timing_s/step:48.7025266494602 - perf/total_num_tokens:159906 -
perf/time_per_step:48.7025266494602 - perf/throughput:3283.320414789452` (one line, shortened): ``LocalLogger`` of
volcengine/verl, from 0.1 (``timing/gen:21.470``, no total) to b178a3c (``actor/entropy:np.float64(0.44)``). Training
with ``sft_trainer`` prints ``train/loss``, ``train/time(s)`` and ``train/global_tokens``. Ray puts ``(TaskRunner
pid=4711)`` in front. A step includes its rollouts.
"""

from __future__ import annotations

import re

from pyrometer.follow.log_line import NUMBER, Format, LoggedPause, LoggedStep, parse_number, parse_step

_LINE = re.compile(r"(?:^|\s)step:(\d+) - (.*)")
_VALUE = re.compile(rf"(?:np\.\w+\()?({NUMBER})\)?")
_TIMES = ("perf/time_per_step", "timing_s/step", "timing/step", "train/time(s)")
_LOSSES = ("train/loss", "actor/pg_loss", "critic/vf_loss")


class VerlParser:
    """Parses verl's lines one by one."""

    def feed(self, line: str) -> LoggedStep | LoggedPause | None:
        """See :class:`~pyrometer.follow.log_line.Parser`."""
        match = _LINE.search(line)
        step = parse_step(match[1]) if match else None
        if match is None or step is None:
            return None
        values = dict(_values(match[2]))
        if not any(name.startswith(("train/", "actor/", "critic/", "perf/", "timing")) for name in values):
            return LoggedPause("eval") if any(name.startswith("val") for name in values) else None
        return LoggedStep(
            step,
            seconds=_first(values, _TIMES),
            tokens=_first(values, ("perf/total_num_tokens", "train/global_tokens")),
            gpu_tokens_per_second=_first(values, ("perf/throughput",)),
            mfu=_first(values, ("train/mfu", "perf/mfu/actor")),
            loss=_first(values, _LOSSES),
            grad_norm=_first(values, ("train/grad_norm", "actor/grad_norm")),
        )


def _values(text: str) -> list[tuple[str, float]]:
    found = []
    for field in text.split(" - "):
        name, _, value = field.rpartition(":")
        match = _VALUE.fullmatch(value.strip())
        number = parse_number(match[1]) if match else None
        if number is not None:
            found.append((name.strip(), number))
    return found


def _first(values: dict[str, float], names: tuple[str, ...]) -> float | None:
    return next((values[name] for name in names if name in values), None)


FORMAT = Format("verl", "", VerlParser, ("step:", " - ", "actor/", "timing"))
