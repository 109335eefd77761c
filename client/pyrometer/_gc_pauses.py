"""Pauses of the garbage collector, from ``gc.callbacks``: Python stops, and in synchronous training all ranks wait."""

from __future__ import annotations

import gc
import time

from pyrometer import ring

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pyrometer._step import Step

_now = time.monotonic_ns
_TOTAL_SLOT = ring.PART_TOTALS_SLOT + ring.PARTS.index("gc")


class GcPauseCounter:
    """Adds collections to the header: all of their time as part ``gc``, and the long ones as pauses of their own.

    Collections happen within other parts. The cost is per collection; a step pays nothing.
    """

    __slots__ = ("count", "slots", "started", "step", "total", "total_long")

    def __init__(self, step: Step) -> None:
        self.step = step
        self.slots = step.slots
        self.started = self.total = self.count = self.total_long = 0
        gc.callbacks.append(self)

    def __call__(self, phase: str, _info: object) -> None:
        """Time a collection; Python calls this with phase ``start`` and ``stop``."""
        if phase == "start":
            self.started = _now()
            return
        if not self.started:
            return  # installed by a finalizer, in the middle of a collection
        duration = _now() - self.started
        self.total += duration
        self.slots[_TOTAL_SLOT] = self.total
        if duration >= ring.LONG_PAUSE_NS:
            self._count_long(duration)

    def stop(self) -> None:
        """Count no more collections, and release the ring's memory."""
        self.slots = self.step.slots
        if self in gc.callbacks:
            gc.callbacks.remove(self)

    def _count_long(self, duration: int) -> None:
        slots = self.slots
        self.count += 1
        self.total_long += duration
        slots[ring.GC_STEP_SLOT] = self.step.count + 1
        slots[ring.GC_PAUSE_TOTAL_SLOT] = self.total_long
        slots[ring.GC_PAUSES_SLOT] = self.count
