"""Write the steps of a log into rings: date them, use one ring per attempt, and write nothing twice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from pyrometer.follow.log_ring import LogRing
from pyrometer.follow.step_reader import MAX_TOKENS, JobSize, StepInterval

# A line is dated from the lines after it. Prometheus refuses what is older than about an hour.
MAX_AGE_SECONDS = 3000.0
_SECOND = 1_000_000_000
_MILLISECOND = 1_000_000


class FirstStep(NamedTuple):
    """The first step that was written: its number, seconds, tokens and FLOPs of one step, and GPUs; 0 is unknown."""

    step: int
    seconds: float
    tokens: float
    flops: float
    gpus: int


class Recorder:
    """Writes what a log says; off every hot path, at a line per second at most.

    Args:
        description: The run's, without ``attempt``, ``source`` and ``world_size``.
        size: For the tokens of a step.
        attempt: Number of the first attempt in the log.
        open_ring: Makes a ring, given its description.
        last_recorded: Returns the last step of an attempt that an earlier follower wrote, None without one.

    Attributes:
        untimed: Number of lines whose time is unknown; they are not written.
        too_old: Number of lines that were too old for Prometheus; they are not written.
        first: The first step that was written, None before.
    """

    def __init__(
        self, description: Mapping[str, Any], size: JobSize, attempt: int,
        open_ring: Callable[[Mapping[str, Any]], LogRing], last_recorded: Callable[[int], int | None],
    ) -> None:  # fmt: skip
        self._description = description
        self._size = size
        self._attempt = attempt - 1
        self._open_ring = open_ring
        self._last_recorded = last_recorded
        self._written_up_to: int | None = None
        self._ring: LogRing | None = None
        self._first_of_attempt = True
        self._file = ""
        self._file_attempt: int | None = None
        self._samples: float | None = None
        self._last_end = 0
        self.untimed = 0
        self.too_old = 0
        self.first: FirstStep | None = None

    def begin_at(self, attempt: int) -> None:
        """Set the attempt in which the log begins, before its first line."""
        self._attempt = attempt - 1

    def set_file(self, file: str) -> None:
        """Name the file of the lines that follow; after a rotation it is another, and attempts count on."""
        if file != self._file:
            self._file, self._file_attempt = file, None

    def record(self, intervals: Sequence[StepInterval], now: int, source: str, age: float = 0.0) -> None:
        """Write these lines, the last of which ended ``age`` seconds before ``now`` (CLOCK_MONOTONIC ns).

        Raises:
            Exception: whatever ``open_ring`` raises.
        """
        ends = _end_times(intervals, now - int(age * _SECOND))
        for interval, end in zip(intervals, ends, strict=True):
            self._count_attempt(interval)
            if now - end > MAX_AGE_SECONDS * _SECOND:
                self._leave_out()
            elif self._is_new(interval):
                self._write(interval, max(end, self._last_end + _MILLISECOND), source)
            self._samples = interval.logged.samples

    def skip(self, intervals: Sequence[StepInterval]) -> None:
        """Skip lines too old to fit in the ring, but count their attempts."""
        for interval in intervals:
            self._count_attempt(interval)
            self._leave_out()

    def close(self, *, ended_well: bool) -> None:
        """End the open attempt."""
        if self._ring is not None:
            self._ring.close(ended_well=ended_well)
            self._ring = None

    def _count_attempt(self, interval: StepInterval) -> None:
        if interval.restarted:
            self._begin_attempt()
        if self._file_attempt is None:
            self._file_attempt = self._attempt

    def _leave_out(self) -> None:
        self.too_old += 1
        self._first_of_attempt = False

    def _begin_attempt(self) -> None:
        # The last one did not end well: it was restarted.
        self.close(ended_well=False)
        self._attempt += 1
        self._written_up_to = self._last_recorded(self._attempt)
        self._first_of_attempt = True

    def _is_new(self, interval: StepInterval) -> bool:
        if interval.seconds is None:
            self.untimed += 1
            return False
        return self._written_up_to is None or interval.logged.step > self._written_up_to

    def _write(self, interval: StepInterval, end: int, source: str) -> None:
        if self._ring is None:
            of_attempt = {"attempt": self._attempt, "source": f"log:{source}", "world_size": interval.gpus}
            of_file = {"log_file": self._file, "log_attempt": self._file_attempt}
            self._ring = self._open_ring({**self._description, **of_attempt, **of_file})
        tokens = self._size.tokens_of(interval.logged) * interval.steps
        tokens = tokens if tokens <= MAX_TOKENS else 0.0
        flops = tokens * (self._description.get("flops_per_token") or 0.0)
        self._ring.append(interval, end, tokens, flops, self._tags(interval))
        if self.first is None and interval.seconds:
            tokens, flops = tokens / interval.steps, flops / interval.steps
            self.first = FirstStep(interval.logged.step, interval.seconds, tokens, flops, interval.gpus)
        self._last_end = end
        self._first_of_attempt = False

    def _tags(self, interval: StepInterval) -> frozenset[str]:
        """Return the log's tags, ``warmup`` for the first line of an attempt, and ``ramp`` where the batch changed."""
        tags = set(interval.tags)
        if self._first_of_attempt and self._written_up_to is None:
            tags.add("warmup")
        if self._samples is not None and interval.logged.samples != self._samples:
            tags.add("ramp")
        return frozenset(tags)


def _end_times(intervals: Sequence[StepInterval], now: int) -> list[int]:
    """Return when each line's last step ended: backwards from now, by the time that the steps took.

    Clocks in logs have no time zone and belong to other machines, and lines that arrive together (from a full buffer,
    or a log that existed before) were not written together.
    """
    ends = []
    for interval in reversed(intervals):
        ends.append(now)
        now -= int((interval.seconds or 0.0) * interval.steps * _SECOND)
    ends.reverse()
    return ends
