"""Count how often a reason came on: rises that the sampler saw, and those that only the driver's counter shows.

The rule, per reason and window between two reads of the counters. Every number is a lower bound: a rise is never
counted twice, two quick ones may count as one.

- A bit that is on in one sample and was off in the one before came on. A bit that is on at the first sample isn't
  counted: nobody saw it come. A bit that is on after a gap and was off before it came on once.
- A counter that grew by a millisecond or more though the sampler saw no rise counts as one where nothing that the
  sampler saw explains it: the bit is off now, and was last seen more than COUNTER_LAG_SECONDS before the window began
  (a driver may add up late).
- A reason that this driver's bitmask can't show counts one where its counter grows after a window of standing still.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

from pyrometer_exporters.node.gpu.clock_events import COUNTER_SLACK_SECONDS, KNOWN_BITS, REASONS, ClockEvent

_BITS = {reason.name: reason.bit for reason in REASONS}

LEAST_GROWTH_SECONDS = 0.001
COUNTER_LAG_SECONDS = COUNTER_SLACK_SECONDS


class Rises:
    """One GPU's bitmask as sampled: how often each bit came on and when it was last on. One thread writes."""

    __slots__ = ("_seen", "counts", "mask")

    def __init__(self) -> None:
        self.counts = {reason.bit: 0 for reason in REASONS}
        self._seen: dict[int, float] = {}
        self.mask: int | None = None
        """As last taken."""

    def take(self, mask: int, now: float) -> None:
        """Note the bitmask, known bits only, at the monotonic time ``now``."""
        before, self.mask = self.mask, mask
        if mask == before:
            return
        for bit in self.counts:
            if before is not None and mask & ~before & bit:
                self.counts[bit] += 1
            elif before is not None and before & ~mask & bit:
                self._seen[bit] = now

    def last_on(self, bit: int, now: float) -> float:
        """Return when the bit was last on; ``now`` if it still is, minus infinity if it never was."""
        if self.mask is not None and self.mask & bit:
            return now
        return self._seen.get(bit, float("-inf"))


@dataclass
class _Window:
    began: float
    seconds: float
    rises: int
    grew: bool | None = None
    """Whether the counter grew in the window before; None where there was none."""


class ClockEventCounts:
    """One GPU's events by reason: those sampled and those only counted by the driver."""

    def __init__(self, rises: Rises) -> None:
        self._rises = rises
        self._unseen = {reason.name: 0 for reason in REASONS}
        self._windows: dict[str, _Window] = {}

    def reopened(self) -> None:
        """Start over after the GPU was away: its counters may have been reset."""
        self._windows.clear()

    def update(
        self, events: Iterable[ClockEvent], samplable: Container[str], mask: int, now: float
    ) -> Mapping[str, int]:
        """Return the counts by reason, for the reasons of ``events``; ``mask`` was read after their counters."""
        mask &= KNOWN_BITS
        counts = {}
        for event in events:
            reason, bit = event.reason, _BITS[event.reason]
            if event.method == "counter":
                self._close_window(event, bit, mask if reason in samplable else None, now)
            else:
                self._windows.pop(reason, None)
            counts[reason] = self._rises.counts[bit] + self._unseen[reason]
        return counts

    def _close_window(self, event: ClockEvent, bit: int, mask: int | None, now: float) -> None:
        window = self._windows.get(event.reason)
        rises = self._rises.counts[bit]
        if window is None:
            self._windows[event.reason] = _Window(now, event.seconds, rises)
            return
        grew = event.seconds - window.seconds >= LEAST_GROWTH_SECONDS
        if grew and rises == window.rises and self._unexplained(window, bit, mask, now):
            self._unseen[event.reason] += 1
        window.began, window.seconds, window.rises, window.grew = now, event.seconds, rises, grew

    def _unexplained(self, window: _Window, bit: int, mask: int | None, now: float) -> bool:
        if mask is None:
            return window.grew is False
        return not mask & bit and self._rises.last_on(bit, now) < window.began - COUNTER_LAG_SECONDS
