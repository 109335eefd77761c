"""What lines said, into rings: when each ended, a ring per attempt, nothing twice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from pyrometer.follow.steps import MOST_TOKENS, Sizes, Timed

# A line can be dated from the lines after it. Prometheus refuses what is older than about an hour.
OLDEST_SECONDS = 3000.0
_SECOND = 1_000_000_000
_MILLISECOND = 1_000_000


class Ring(Protocol):
    """Where an attempt goes; :class:`~pyrometer.follow.logged_ring.LoggedRing`."""

    def append(self, timed: Timed, end: int, tokens: float, flops: float, tags: frozenset[str]) -> None:
        """Add a line."""

    def close(self, *, well: bool) -> None:
        """End the attempt."""


class Recorder:
    """Not for the hot path of anybody: a line every second at most.

    Args:
        meta: the run's description without ``attempt``, ``source`` and ``world_size``.
        sizes: for the tokens of a step.
        attempt: number of the first attempt in the log.
        open_ring: makes the ring of a description.
        known: the last step of an attempt that is in a ring already.
    """

    def __init__(
        self, meta: Mapping[str, Any], sizes: Sizes, attempt: int,
        open_ring: Callable[[Mapping[str, Any]], Ring], known: Callable[[int], int | None],
    ) -> None:  # fmt: skip
        self._meta = meta
        self._sizes = sizes
        self._attempt = attempt - 1
        self._open_ring = open_ring
        self._known = known
        self._after: int | None = None
        self._ring: Ring | None = None
        self._first = True
        self._file = ""
        self._file_attempt: int | None = None
        self._samples: float | None = None
        self._last_end = 0
        self.untimed = 0
        """Lines whose time nothing tells."""
        self.too_old = 0
        """Lines of steps that ended before what Prometheus still takes."""

    def begin_at(self, attempt: int) -> None:
        """The log that is about to be read begins in this attempt."""
        self._attempt = attempt - 1

    def read_from(self, file: str) -> None:
        """What is taken from now on is of this file: after a rotation another, and the attempts go on."""
        if file != self._file:
            self._file, self._file_attempt = file, None

    def take(self, lines: Sequence[Timed], now: int, source: str, age: float = 0.0) -> None:
        """Record these lines, the last of which ended ``age`` seconds before ``now`` (CLOCK_MONOTONIC ns)."""
        for timed, end in zip(lines, _ends(lines, now - int(age * _SECOND)), strict=True):
            self._pass(timed)
            if now - end > OLDEST_SECONDS * _SECOND:
                self._leave_out()
            elif self._is_new(timed):
                self._record(timed, max(end, self._last_end + _MILLISECOND), source)
            self._samples = timed.logged.samples

    def pass_over(self, lines: Sequence[Timed]) -> None:
        """Leave these out: so many have come after them that no ring could hold them all. Their attempts count."""
        for timed in lines:
            self._pass(timed)
            self._leave_out()

    def _pass(self, timed: Timed) -> None:
        if timed.restarted:
            self._begin_attempt()
        if self._file_attempt is None:
            self._file_attempt = self._attempt

    def _leave_out(self) -> None:
        self.too_old += 1
        self._first = False

    def close(self, *, well: bool) -> None:
        """The log is followed no longer."""
        if self._ring is not None:
            self._ring.close(well=well)
            self._ring = None

    def _begin_attempt(self) -> None:
        # It did not end well: it was begun again.
        self.close(well=False)
        self._attempt += 1
        self._after = self._known(self._attempt)
        self._first = True

    def _is_new(self, timed: Timed) -> bool:
        if timed.seconds is None:
            self.untimed += 1
            return False
        return self._after is None or timed.logged.step > self._after

    def _record(self, timed: Timed, end: int, source: str) -> None:
        if self._ring is None:
            of_attempt = {"attempt": self._attempt, "source": f"log:{source}", "world_size": timed.gpus}
            of_file = {"log_file": self._file, "log_attempt": self._file_attempt}
            self._ring = self._open_ring({**self._meta, **of_attempt, **of_file})
        tokens = self._sizes.tokens_of(timed.logged) * timed.steps
        tokens = tokens if tokens <= MOST_TOKENS else 0.0
        flops = tokens * (self._meta.get("flops_per_token") or 0.0)
        self._ring.append(timed, end, tokens, flops, self._tags(timed))
        self._last_end = end
        self._first = False

    def _tags(self, timed: Timed) -> frozenset[str]:
        """Beside the log's own: the first line of an attempt holds its warm-up; a batch that grew is another MFU."""
        tags = set(timed.tags)
        if self._first and self._after is None:
            tags.add("warmup")
        if self._samples is not None and timed.logged.samples != self._samples:
            tags.add("ramp")
        return frozenset(tags)


def _ends(lines: Sequence[Timed], now: int) -> list[int]:
    """When each line's last step ended: backwards from now, by the time that the steps took.

    Clocks in logs have no time zone and stand on other machines; lines that come together (a buffer that was full, a
    log that was there before us) were not written together.
    """
    ends = []
    for timed in reversed(lines):
        ends.append(now)
        now -= int((timed.seconds or 0.0) * timed.steps * _SECOND)
    ends.reverse()
    return ends
