"""Numbers that the GPU delivers later: waits timed with CUDA events, and tensors on their way to the CPU.

torch is looked up in ``sys.modules`` and never imported. Nothing here waits for the GPU: what is not ready is polled
again at a later step.
"""

from __future__ import annotations

import sys
import time

from pyrometer import ring
from pyrometer._step import Part, note_failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any

    from pyrometer._step import Step

_now = time.monotonic_ns
# A wait per layer and micro-batch of a large model is a few thousand a step. All ranks of a pipeline stage make the
# same calls, so the waits beyond the limit are left out on all of them alike.
_MAX_PENDING = 4096


def initialized_torch() -> Any:
    """Return torch where the job has loaded it and initialised CUDA, else None."""
    torch = sys.modules.get("torch")
    try:
        return torch if torch is not None and torch.cuda.is_initialized() else None
    except Exception:  # noqa: BLE001  a stubbed or half-imported torch
        return None


def is_on_device(value: object) -> bool:
    """Return whether to ask for this value's number is to wait for a GPU: a tensor of torch, or an array of JAX."""
    if getattr(value, "is_cuda", False) is True:
        return True
    is_ready = getattr(value, "is_ready", None)
    if callable(is_ready):
        return not is_ready()
    kind = getattr(getattr(value, "device", None), "type", "cpu")
    return isinstance(kind, str) and kind not in {"cpu", "meta"}


class WaitPart(Part):
    """``with run.part("wait"):``, timed on the GPU's stream where there is one, else on the CPU.

    On a GPU the call only queues the collective and returns, so its time on the CPU means nothing. Two events around it
    measure how long the stream waited; they are read at the next step's first wait, when the GPU has passed them.
    """

    __slots__ = ("broken", "first_event", "free_events", "pending", "step", "steps_collected", "torch")

    def __init__(self, slots: memoryview[int], number: int, step: Step) -> None:
        super().__init__(slots, number)
        self.step = step
        self.torch: Any = None
        self.broken = False
        self.first_event: Any = None
        self.free_events: list[Any] = []
        self.pending: list[tuple[Any, Any]] = []
        self.steps_collected = 0

    def __enter__(self) -> None:
        super().__enter__()
        if self.torch is None and not self.broken:
            self.torch = initialized_torch()
        if self.torch is not None:
            self.first_event = None
            self._try(self._begin)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.torch is None and not self.broken:
            super().__exit__(kind, error, trace)
            return
        if self.first_event is not None:
            self._try(self._end)
        self.slots[ring.PART_STARTED_SLOT] = _now()
        self.slots[ring.PART_SLOT] = 0
        if kind is not None:
            note_failure(self.slots, self.number)

    def _try(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception:  # noqa: BLE001  an error of CUDA is the job's to report: from now on no wait is known
            self.broken = True
            self.torch = self.first_event = None
            self.free_events.clear()
            self.pending.clear()

    def _begin(self) -> None:
        if self.steps_collected != self.step.count:
            self.steps_collected = self.step.count
            self._collect()
        # Inside a CUDA graph's capture an event has no time.
        if len(self.pending) < _MAX_PENDING and not self.torch.cuda.is_current_stream_capturing():
            self.first_event = self._record_event()

    def _end(self) -> None:
        self.pending.append((self.first_event, self._record_event()))
        self.first_event = None

    def _record_event(self) -> Any:
        event = self.free_events.pop() if self.free_events else self.torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _collect(self) -> None:
        """Add the waits that the GPU has passed, in order, up to the first that it hasn't."""
        passed = 0
        for first, last in self.pending:
            if not last.query():
                break
            self.total += int(first.elapsed_time(last) * 1e6)
            self.free_events += (first, last)
            passed += 1
        del self.pending[:passed]
        self.slots[ring.PART_TOTALS_SLOT + self.number] = self.total


class DeferredValues:
    """Numbers that are still on the GPU: copied without waiting, and read at the next step that records one.

    One copy per slot is in flight at a time; values given meanwhile are dropped.
    """

    __slots__ = ("in_flight",)

    def __init__(self) -> None:
        self.in_flight: dict[int, tuple[Any, Any]] = {}

    def exchange(self, slot: int, tensor: Any) -> float | None:
        """Begin to copy a tensor's number. Return the one that has arrived meanwhile, or None.

        Raises:
            Exception: those of torch.
        """
        arrived = None
        torch = sys.modules["torch"]
        if slot in self.in_flight:
            buffer, event = self.in_flight[slot]
            if not event.query():
                return None
            arrived = float(buffer)
        else:
            buffer = torch.empty((), dtype=torch.float32, pin_memory=True)
        event = torch.cuda.Event()
        buffer.copy_(tensor.detach().reshape(()), non_blocking=True)
        event.record()
        self.in_flight[slot] = (buffer, event)
        return arrived
