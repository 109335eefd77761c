"""The hot path: a step and its parts, one object each for a whole run, so that a step allocates nothing.

``benchmarks/bench_client.py`` measures it. Values are written by item assignment on a memoryview, which is faster than
``struct.pack_into``, and the position of the next record is stored rather than computed.
"""

from __future__ import annotations

import time

from pyrometer import ring
from pyrometer._shutdown import failure_of

TYPE_CHECKING = False  # typing.TYPE_CHECKING without importing typing, a large part of what the import would cost
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Protocol

    class DeviceTimes(Protocol):
        """Times steps by another clock: see :mod:`pyrometer._device_times`."""

        def begin(self, started: int) -> None: ...
        def observe(self) -> bool: ...
        def finish(self) -> None: ...
        def stop(self) -> None: ...


_now = time.monotonic_ns
_COUNT, _STEP_STARTED, _STEP_TOTAL = ring.COUNT_SLOT, ring.STEP_STARTED_SLOT, ring.STEP_TOTAL_SLOT
_PART, _PART_STARTED, _PART_TOTALS = ring.PART_SLOT, ring.PART_STARTED_SLOT, ring.PART_TOTALS_SLOT
_TICKING, _LONGEST_TICK, _EXIT_PART = ring.TICKING_SLOT, ring.LONGEST_TICK_SLOT, ring.EXIT_PART_SLOT
_PAUSES = ring.TAG_BITS["checkpoint"] | ring.TAG_BITS["eval"]
# The first steps compile; their pauses say nothing about later ones.
_FIRST_STEPS = 10
_FIRST, _END, _SLOTS = ring.FIRST_RECORD_SLOT, ring.FILE_BYTES // 8, ring.RECORD_SLOTS
_CONFIGURED = ring.FLAG_GLOBAL_BATCH_SIZE | ring.FLAG_SEQUENCE_LENGTH | ring.FLAG_RECOMPUTE
# Not in the ring: tokens per step, or FLOPs per token, are no longer those of the description; a step is observed.
_NEW_TOKENS, _NEW_FLOPS, _OBSERVED = 1 << 40, 1 << 41, 1 << 42
_NOT_IN_RING = _NEW_TOKENS | _NEW_FLOPS | _OBSERVED
_SKIPPED = ring.TAG_BITS["skipped"]
_UNUSUAL = _SKIPPED | ring.FLAG_TOKENS | ring.FLAG_FLOPS | ring.FLAG_METRICS | _CONFIGURED | _NOT_IN_RING
_NEVER = -1


def scratch_memory() -> memoryview:
    """Return private memory of a ring's size, written to where there is no ring."""
    return memoryview(bytearray(ring.FILE_BYTES))


class Step:
    """``with run.step():``.

    Attributes:
        count: how many steps are finished.
        persistent_flags: flags that every step has from now on, for what changed during the run.
        metrics: bits of the metrics of its own that the step under way has.
        failure_count: how many steps were finished when an exception or ``sys.exit(1)`` left one.
        failure: that exception's name, or the exit status.
        tick_ready: False where :class:`Run` has something to prepare before the next tick.
    """

    __slots__ = (
        "count", "default_flops", "default_tokens", "device_times", "doubles", "ended", "failure", "failure_count",
        "flags", "flops_per_token", "global_batch_size", "longest_tick", "metrics", "observers", "offset",
        "persistent_flags", "recompute_index", "sequence_length", "slots", "started", "tick_ready", "ticking",
        "tokens", "total",
    )  # fmt: skip

    def __init__(self, memory: memoryview, tokens: int, flops_per_token: float) -> None:
        self.tokens = self.default_tokens = tokens
        self.flops_per_token = flops_per_token
        self.default_flops = tokens * flops_per_token
        self.global_batch_size = self.sequence_length = self.recompute_index = 0
        self.offset = ring.FIRST_RECORD_SLOT
        self.count = self.total = self.flags = self.persistent_flags = self.started = self.ended = 0
        self.failure_count = _NEVER
        self.failure = ""
        self.longest_tick = self.metrics = 0
        self.observers: list[Callable[[], bool]] = []
        self.ticking = self.tick_ready = False
        self.device_times: DeviceTimes | None = None
        self.write_to(memory)

    def write_to(self, memory: memoryview) -> None:
        """Write all records and totals into ``memory``, laid out as a ring, from now on."""
        self.slots: memoryview[int] = memory.cast("q")
        self.doubles: memoryview[float] = memory.cast("d")

    def __enter__(self) -> None:
        self.started = self.slots[_STEP_STARTED] = _now()
        if self.device_times is not None:
            self.device_times.begin(self.started)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        end = _now()
        slots = self.slots
        if kind is not None:
            self._fail(error)
            return
        at = self.offset
        started = self.started
        flags = self.flags
        self.count = count = self.count + 1
        slots[at] = count
        slots[at + 1] = started
        slots[at + 2] = self.ended = end
        slots[at + 3] = flags
        self.total = slots[_STEP_TOTAL] = self.total + end - started
        if flags & _UNUSUAL:
            self._complete_record(at, flags)
        slots[_COUNT] = count  # last: a record below the count is whole
        self.flags = self.persistent_flags
        at += _SLOTS
        self.offset = at if at < _END else _FIRST

    def tick(self) -> None:
        """End the step that began at the last tick, and begin the next.

        TICKING_SLOT shows the reader whether a pause between two ticks can be an evaluation that has no name.
        """
        if self.ticking:
            flags, started = self.flags, self.started
            self.__exit__(None, None, None)
            self.started = self.ended
            if self.ended - started > self.longest_tick:
                self._update_longest_tick(self.ended - started, flags)
        else:
            self.ticking = True
            self.started = _now()
            if self.device_times is not None:
                self.device_times.begin(self.started)

    def discard(self) -> None:
        """Drop the step under way: no record, no time, and its values do not become those of the next step."""
        self.slots[_STEP_STARTED] = self.slots[_TICKING] = self.ended = 0
        self.flags = self.persistent_flags
        self.ticking = self.tick_ready = False

    def set_tokens(self, tokens: int) -> None:
        """Set the tokens per step, from the step under way on."""
        self.tokens = tokens
        self.add_persistent_flag(_NEW_TOKENS)

    def set_flops_per_token(self, flops: float) -> None:
        """Set the FLOPs per token, from the step under way on."""
        self.flops_per_token = flops
        self.add_persistent_flag(_NEW_FLOPS)

    def add_persistent_flag(self, flag: int) -> None:
        """Set a flag for the step under way and all that follow."""
        self.flags |= flag
        self.persistent_flags |= flag

    def observe(self, observer: Callable[[], bool]) -> None:
        """Call ``observer`` at the end of each step as long as it returns True; later steps cost no more for it."""
        self.observers.append(observer)
        self.add_persistent_flag(_OBSERVED)

    def time_on_device(self, times: DeviceTimes) -> None:
        """Have ``times`` time this step and all that follow."""
        self.device_times = times
        self.observe(times.observe)

    def _update_longest_tick(self, duration: int, flags: int) -> None:
        """Publish how long a step of this run may take, unnamed pauses included."""
        if self.count > _FIRST_STEPS and not flags & _PAUSES:
            self.longest_tick = self.slots[_LONGEST_TICK] = duration

    def _fail(self, error: BaseException | None) -> None:
        self.discard()
        self.failure_count, self.failure = self.count, failure_of(error)

    def _complete_record(self, at: int, flags: int) -> None:
        """Complete the record of a step that differs from the description, and add the difference to the header's sums.

        Only at the step's end, not in :meth:`Run.record`: the header's totals count finished steps, and a counter that
        took a small step's difference before the step itself would go back for a moment, which Prometheus takes for a
        restart.
        """
        slots, doubles = self.slots, self.doubles
        if flags & _SKIPPED:
            slots[ring.SKIPPED_SLOT] += 1
        if flags & ring.FLAG_METRICS:
            slots[at + ring.METRICS] = self.metrics
        if flags & _CONFIGURED:
            slots[at + ring.GLOBAL_BATCH_SIZE] = self.global_batch_size
            slots[at + ring.SEQUENCE_LENGTH] = self.sequence_length
            slots[at + ring.RECOMPUTE_NUMBER] = self.recompute_index
        if flags & _NEW_TOKENS and not flags & ring.FLAG_TOKENS:
            slots[at + ring.TOKENS] = self.tokens
            flags |= ring.FLAG_TOKENS
        tokens = slots[at + ring.TOKENS] if flags & ring.FLAG_TOKENS else self.default_tokens
        if flags & _NEW_FLOPS and not flags & ring.FLAG_FLOPS:
            doubles[at + ring.FLOPS] = tokens * self.flops_per_token
            flags |= ring.FLAG_FLOPS
        flops = doubles[at + ring.FLOPS] if flags & ring.FLAG_FLOPS else tokens * self.flops_per_token
        slots[at + ring.FLAGS] = flags & ~_NOT_IN_RING
        try:
            slots[ring.TOKENS_EXTRA_SLOT] += tokens - self.default_tokens
            doubles[ring.FLOPS_EXTRA_SLOT] += flops - self.default_flops
        except (ValueError, OverflowError):
            pass  # more than 2**63 tokens: no run gets there
        if flags & _OBSERVED:  # once the record is whole but for the count
            self.observers = [observer for observer in self.observers if observer()]
            if not self.observers:
                self.persistent_flags &= ~_OBSERVED


class Part:
    """``with run.part("data"):``."""

    __slots__ = ("number", "slots", "started", "total", "total_slot")

    def __init__(self, slots: memoryview[int], number: int, total_slot: int = 0) -> None:
        self.slots = slots
        self.number = number
        self.total_slot = total_slot or _PART_TOTALS + number
        self.total = 0
        self.started = 0

    def __enter__(self) -> None:
        slots = self.slots
        self.started = slots[_PART_STARTED] = _now()
        slots[_PART] = self.number + 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        slots = self.slots
        end = slots[_PART_STARTED] = _now()
        self.total = total = self.total + end - self.started
        slots[self.total_slot] = total
        slots[_PART] = 0
        if kind is not None:
            note_failure(slots, self.number)


class TaggedPart(Part):
    """A checkpoint or an evaluation: tags the step that it falls into or, between two steps, the next."""

    __slots__ = ("bit", "step")

    def __init__(self, slots: memoryview[int], number: int, step: Step, bit: int) -> None:
        super().__init__(slots, number)
        self.step = step
        self.bit = bit

    def __enter__(self) -> None:
        self.step.flags |= self.bit
        super().__enter__()


class UntimedPart(Part):
    """A part that only shows where the rank is; its time is counted elsewhere."""

    __slots__ = ()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.slots[_PART_STARTED] = _now()
        self.slots[_PART] = 0


def note_failure(slots: memoryview[int], number: int) -> None:
    """Note that an exception leaves a part: should it end the process, the part says whether another's end was first.

    The first of a step counts, as it is the innermost.
    """
    step = slots[_COUNT] + 1
    if slots[_EXIT_PART] >> 8 != step:
        slots[_EXIT_PART] = step << 8 | number + 1
