"""What the GPU knows and tells later: waits timed with CUDA events, and tensors on their way to the CPU.

torch is looked up in ``sys.modules`` and never imported. Nothing here waits for the GPU: what is not ready is asked for
again at a later step.
"""

from __future__ import annotations

import sys
import time

from pyrometer import ring
from pyrometer._step import Part

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any

    from pyrometer._step import Step

_now = time.monotonic_ns
# A wait per layer and micro-batch of a large model is a few thousand a step. All ranks of a pipeline stage make the
# same calls, so what is left out beyond is left out on all of them alike.
_MAX_PENDING = 4096


def loaded_torch() -> Any:
    """Torch, where the job has loaded it and woken CUDA; else None."""
    torch = sys.modules.get("torch")
    try:
        return torch if torch is not None and torch.cuda.is_initialized() else None
    except Exception:  # noqa: BLE001  a stubbed or half-imported torch
        return None


class WaitPart(Part):
    """``with run.part("wait"):``, timed on the GPU's stream where there is one, else on the CPU.

    On a GPU the call only queues the collective and returns: its time on the CPU says nothing. Two events around it
    tell how long the stream stood, and are read when the next step waits, by which time the GPU has passed them.
    """

    __slots__ = ("broken", "first", "free", "pending", "seen", "step", "torch")

    def __init__(self, slots: memoryview[int], number: int, step: Step) -> None:
        super().__init__(slots, number)
        self.step = step
        self.torch: Any = None
        self.broken = False
        self.first: Any = None
        self.free: list[Any] = []
        self.pending: list[tuple[Any, Any]] = []
        self.seen = 0

    def __enter__(self) -> None:
        super().__enter__()
        if self.torch is None and not self.broken:
            self.torch = loaded_torch()
        if self.torch is not None:
            self.first = None
            self._try(self._begin)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.torch is None and not self.broken:
            super().__exit__(kind, error, trace)
            return
        if self.first is not None:
            self._try(self._end)
        self.slots[ring.PART_STARTED_SLOT] = _now()
        self.slots[ring.PART_SLOT] = 0

    def _try(self, act: Any) -> None:
        try:
            act()
        except Exception:  # noqa: BLE001  an error of CUDA is the job's to report: from now on no wait is known
            self.broken = True
            self.torch = self.first = None
            self.free.clear()
            self.pending.clear()

    def _begin(self) -> None:
        if self.seen != self.step.count:
            self.seen = self.step.count
            self._harvest()
        # Inside a CUDA graph's capture an event has no time.
        if len(self.pending) < _MAX_PENDING and not self.torch.cuda.is_current_stream_capturing():
            self.first = self._mark()

    def _end(self) -> None:
        self.pending.append((self.first, self._mark()))
        self.first = None

    def _mark(self) -> Any:
        event = self.free.pop() if self.free else self.torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _harvest(self) -> None:
        """Add the waits that the GPU has passed, in order, up to the first that it hasn't."""
        ready = 0
        for first, last in self.pending:
            if not last.query():
                break
            self.total += int(first.elapsed_time(last) * 1e6)
            self.free += (first, last)
            ready += 1
        del self.pending[:ready]
        self.slots[ring.PART_TOTALS_SLOT + self.number] = self.total


class LateValues:
    """Numbers that are still on the GPU: copied without waiting, and read at the next step that records one.

    One of a kind is under way at a time; those given meanwhile are left out.
    """

    __slots__ = ("under_way",)

    def __init__(self) -> None:
        self.under_way: dict[int, tuple[Any, Any]] = {}

    def swap(self, slot: int, tensor: Any) -> float | None:
        """Send a tensor's number on its way; the number that has arrived meanwhile, or None. Raises what torch does."""
        arrived = None
        if slot in self.under_way:
            buffer, event = self.under_way[slot]
            if not event.query():
                return None
            arrived = float(buffer)
        torch = sys.modules["torch"]
        buffer = torch.empty((), dtype=torch.float32, pin_memory=True) if slot not in self.under_way else buffer
        event = torch.cuda.Event()
        buffer.copy_(tensor.detach().reshape(()), non_blocking=True)
        event.record()
        self.under_way[slot] = (buffer, event)
        return arrived
