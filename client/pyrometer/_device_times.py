"""Step times as the GPU had them, by CUDA events at the ends of steps: the host only launches and runs ahead.

An event is recorded at the end of each step, and at the beginning of one that doesn't follow its predecessor at once.
They are queried at the ends of later steps, and never waited for. Until then a step's time is open: the header says up
to which step it is settled. torch is looked up in ``sys.modules`` and never imported. ``PYROMETER_DEVICE_TIMES=0``
leaves the GPU as it is.
"""

from __future__ import annotations

import time

from pyrometer import ring
from pyrometer._cuda import initialized_torch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pyrometer._step import Step

    # The event before, if any; when the host recorded it, 0 where it is the end of the step before; the event after;
    # when the host recorded it; first and last step, counted from 1.
    Span = tuple[Any, int, Any, int, int, int]

_now = time.monotonic_ns
# A GPU's queue holds about a thousand kernels, which is less than a hundred steps of any model worth timing. Without a
# free event the step's time is that of a span of several.
_MOST_EVENTS = 128
# A host needs less from one step to the next, and more to launch an evaluation.
_GAP_NS = 100_000
# By then a job has initialised CUDA or never will.
_FIRST_STEPS = 100
# Records as old are about to be overwritten.
_OLDEST = ring.CAPACITY // 2


class DeviceTimes:
    """Times the steps of one run on the GPU. It never raises: after an error of CUDA it is silent, and says so."""

    __slots__ = (
        "_began",
        "_enabled",
        "_end",
        "_free",
        "_from",
        "_last",
        "_made",
        "_pending",
        "_recorded",
        "_step",
        "_torch",
    )

    def __init__(self, step: Step, *, enabled: bool = True) -> None:
        """Time from now on where CUDA is initialised, else from the first step after that on."""
        self._step = step
        self._enabled = enabled
        self._torch: Any = None
        self._last: Any = None  # the event at the end of the step before
        self._began: Any = None  # at the beginning of the step under way, where that isn't the end of the one before
        self._recorded = 0
        self._from = 0  # the step before the first that has no event at its end yet
        self._end = 0  # by the host's clock, when the GPU passed the last event that is settled
        self._made = 0
        self._free: list[Any] = []
        self._pending: list[Span] = []
        self._arm()

    def observe(self) -> bool:
        """Note the end of a step. Return whether to be called at the next."""
        try:
            if self._torch is not None:
                self.settle()  # first, as it releases events
                self._end_step()
                return True
            if self._step.slots[ring.TIMING_SLOT] != ring.HOST_TIME or self._step.count > _FIRST_STEPS:
                return False
            self._arm()
        except Exception:  # noqa: BLE001  an error of CUDA is the job's to report
            self._fail()
        return self._torch is not None or self._step.slots[ring.TIMING_SLOT] == ring.HOST_TIME

    def begin(self, started: int) -> None:
        """Note the beginning of a step, ``started`` by the host's clock."""
        if self._torch is None or started - self._step.ended < _GAP_NS or self._from < self._step.count:
            return
        try:
            self._began = self._record(self._began)
            self._recorded = started
            if self._began is None:
                self._forget_last()
        except Exception:  # noqa: BLE001  as above
            self._fail()

    def settle(self) -> None:
        """Write the times of the steps that the GPU has passed, in order, up to the first that it hasn't.

        Raises:
            Exception: those of CUDA.
        """
        if self._torch is None or self._torch.cuda.is_current_stream_capturing():
            return
        settled = 0
        while self._pending and self._pending[0][2].query():
            span = self._pending.pop(0)
            self._write(span)
            settled = span[5]
            self._release(span[0])
            if span[2] is not (self._pending[0][0] if self._pending else self._last):
                self._release(span[2])
        if settled:
            self._step.slots[ring.SETTLED_SLOT] = settled

    def finish(self) -> None:
        """Settle what the GPU has passed: no further step comes."""
        try:
            self.settle()
        except Exception:  # noqa: BLE001  as above
            self._fail()

    def stop(self) -> None:
        """Release the events without a call of CUDA: this may be a forked child."""
        self._torch = self._last = self._began = None
        self._free.clear()
        self._pending.clear()

    def _arm(self) -> None:
        torch = initialized_torch()
        if torch is None:
            return
        step = self._step
        step.slots[ring.SETTLED_SLOT] = self._from = step.count
        step.slots[ring.TIMING_SLOT] = ring.DEVICE_TIME if self._enabled else ring.LAUNCH_TIME
        if self._enabled:
            self._torch = torch
            self._end = step.ended
            self._last = self._record(None) if step.count else None

    def _end_step(self) -> None:
        """Record an event, where there is one, and queue the span that it ends."""
        step = self._step
        event = self._record(None)
        if event is None:
            return  # the next event ends the span
        first, recorded = (self._last, 0) if self._began is None else (self._began, self._recorded)
        if self._began is not None:
            self._forget_last()
        self._pending.append((first, recorded, event, step.ended, self._from + 1, step.count))
        self._last, self._began, self._from = event, None, step.count

    def _record(self, event: Any) -> Any:
        """Return an event that is recorded now; None within a graph's capture, and where all are in flight."""
        if self._torch.cuda.is_current_stream_capturing():
            return None
        if event is None:
            if self._free:
                event = self._free.pop()
            elif self._made < _MOST_EVENTS:
                event = self._torch.cuda.Event(enable_timing=True)
                self._made += 1
            else:
                return None
        event.record()
        return event

    def _forget_last(self) -> None:
        """Release the event at the end of the step before; where that step is not settled, settling does."""
        if not self._pending:
            self._release(self._last)
        self._last = None

    def _release(self, event: Any) -> None:
        if event is not None:
            self._free.append(event)

    def _write(self, span: Span) -> None:
        """Write the time of a span's steps into their records, several in equal shares.

        The GPU's clock is not ours: an event was passed neither before the host recorded it nor after it was seen, and
        between these bounds one follows from another by the GPU's own times.
        """
        first, began, last, recorded, oldest, newest = span
        duration = 0 if first is None else int(first.elapsed_time(last) * 1e6)
        self._end = min(max(max(self._end, began) + duration, recorded), _now())
        step = self._step
        if duration <= 0 or step.count - oldest > _OLDEST:
            return
        share = duration // (newest - oldest + 1)
        for number in range(oldest, newest + 1):
            at = ring.FIRST_RECORD_SLOT + (number - 1) % ring.CAPACITY * ring.RECORD_SLOTS
            end = self._end - share * (newest - number)
            step.slots[at + ring.DEVICE_START] = end - share
            step.slots[at + ring.DEVICE_END] = end
            step.slots[at + ring.FLAGS] |= ring.FLAG_DEVICE

    def _fail(self) -> None:
        self.stop()
        self._step.slots[ring.TIMING_SLOT] = ring.LAUNCH_TIME
