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


class Pauses:
    """Counts them into the header: all of their time as part ``gc``, and the long ones apart.

    They lie within other parts. About 1 us per collection; none of it per step.
    """

    __slots__ = ("began", "long", "slots", "step", "total", "total_long")

    def __init__(self, step: Step) -> None:
        self.step = step
        self.slots = step.slots
        self.began = self.total = self.long = self.total_long = 0
        gc.callbacks.append(self)

    def __call__(self, phase: str, _info: object) -> None:
        """The collector begins or ends."""
        if phase == "start":
            self.began = _now()
            return
        if not self.began:
            return  # installed by a finalizer, in the middle of a collection
        took = _now() - self.began
        self.total += took
        self.slots[_TOTAL_SLOT] = self.total
        if took >= ring.LONG_PAUSE_NS:
            self._count(took)

    def _count(self, took: int) -> None:
        slots = self.slots
        self.long += 1
        self.total_long += took
        slots[ring.GC_STEP_SLOT] = self.step.count + 1
        slots[ring.GC_PAUSE_TOTAL_SLOT] = self.total_long
        slots[ring.GC_PAUSES_SLOT] = self.long

    def stop(self) -> None:
        """Count no more."""
        self.slots = self.step.slots
        if self in gc.callbacks:
            gc.callbacks.remove(self)
