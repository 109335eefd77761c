"""The hot path: a step and its parts, one object each for a whole run, so that a step allocates nothing.

``benchmarks/bench_client.py`` measures it. Item assignment on a memoryview costs a tenth of struct.pack_into; the place
of the next record is kept rather than computed.
"""

from __future__ import annotations

import time

from pyrometer import ring

TYPE_CHECKING = False  # typing.TYPE_CHECKING without importing typing, which takes half of what the import may cost
if TYPE_CHECKING:
    from types import TracebackType

_now = time.monotonic_ns
_COUNT, _STEP_STARTED, _STEP_TOTAL = ring.COUNT_SLOT, ring.STEP_STARTED_SLOT, ring.STEP_TOTAL_SLOT
_PART, _PART_STARTED, _PART_TOTALS = ring.PART_SLOT, ring.PART_STARTED_SLOT, ring.PART_TOTALS_SLOT
_TICKING, _LONGEST_TICK = ring.TICKING_SLOT, ring.LONGEST_TICK_SLOT
_PAUSES = ring.TAG_BITS["checkpoint"] | ring.TAG_BITS["eval"]
# The first steps compile; no pause of theirs is usual later.
_FIRST_STEPS = 10
_FIRST, _END, _SLOTS = ring.FIRST_RECORD_SLOT, ring.FILE_BYTES // 8, ring.RECORD_SLOTS
_CONFIGURED = ring.FLAG_GLOBAL_BATCH_SIZE | ring.FLAG_SEQUENCE_LENGTH | ring.FLAG_RECOMPUTE
# Not in the ring: tokens per step, or FLOPs per token, are no longer those of the description.
_NEW_TOKENS, _NEW_FLOPS = 1 << 40, 1 << 41
_UNUSUAL = ring.FLAG_TOKENS | ring.FLAG_FLOPS | _CONFIGURED | _NEW_TOKENS | _NEW_FLOPS
_NEVER = -1


def scratch() -> memoryview:
    """Memory of nobody's, to write into once there is no ring."""
    return memoryview(bytearray(ring.FILE_BYTES))


class Step:
    """``with run.step():``.

    Attributes:
        lasting: flags that every step has from now on, for what changed during the run.
        left_at: how many steps were finished when ``sys.exit(1)`` or the like left one.
        plain: whether the next tick is like the last: else :class:`Run` has something to arrange before it.
    """

    __slots__ = (
        "at", "batch", "count", "doubles", "ended", "flags", "flops_per_token", "lasting", "left_at", "length",
        "longest", "plain", "recompute", "slots", "started", "ticking", "tokens", "total", "usual_flops",
        "usual_tokens",
    )  # fmt: skip

    def __init__(self, memory: memoryview, tokens: int, flops_per_token: float) -> None:
        self.tokens = self.usual_tokens = tokens
        self.flops_per_token = flops_per_token
        self.usual_flops = tokens * flops_per_token
        self.batch = self.length = self.recompute = 0
        self.at = ring.FIRST_RECORD_SLOT
        self.count = self.total = self.flags = self.lasting = self.started = self.ended = 0
        self.left_at = _NEVER
        self.longest = 0
        self.ticking = self.plain = False
        self.use(memory)

    def use(self, memory: memoryview) -> None:
        """Write into this memory from now on."""
        self.slots: memoryview[int] = memory.cast("q")
        self.doubles: memoryview[float] = memory.cast("d")

    def __enter__(self) -> None:
        self.started = self.slots[_STEP_STARTED] = _now()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        end = _now()
        slots = self.slots
        if kind is not None:
            self._abandon(error)
            return
        at = self.at
        started = self.started
        flags = self.flags
        self.count = count = self.count + 1
        slots[at] = count
        slots[at + 1] = started
        slots[at + 2] = self.ended = end
        slots[at + 3] = flags
        self.total = slots[_STEP_TOTAL] = self.total + end - started
        if flags & _UNUSUAL:
            self._settle(at, flags)
        slots[_COUNT] = count  # last: a record below the count is whole
        self.flags = self.lasting
        at += _SLOTS
        self.at = at if at < _END else _FIRST

    def tick(self) -> None:
        """The end of a step that began at the last tick.

        TICKING_SLOT says whether one counts as under way between ticks, or if nobody can tell it from an evaluation.
        """
        if self.ticking:
            flags, started = self.flags, self.started
            self.__exit__(None, None, None)
            self.started = self.ended
            if self.ended - started > self.longest:
                self._learn(self.ended - started, flags)
        else:
            self.ticking = True
            self.started = _now()

    def leave_out(self) -> None:
        """What was under way is no step, or not only: no record, no time, and its values are not the next step's."""
        self.slots[_STEP_STARTED] = self.slots[_TICKING] = 0
        self.flags = self.lasting
        self.ticking = self.plain = False

    def _learn(self, took: int, flags: int) -> None:
        """How long a step of this run may be: what nobody names, lies in it."""
        if self.count > _FIRST_STEPS and not flags & _PAUSES:
            self.longest = self.slots[_LONGEST_TICK] = took

    def _abandon(self, error: BaseException | None) -> None:
        self.leave_out()
        if isinstance(error, SystemExit) and error.code not in (None, 0):
            self.left_at = self.count

    def _settle(self, at: int, flags: int) -> None:
        """Complete the record of a step that is not as the description says, and the header's sums with it.

        Only now, not in :meth:`Run.record`: the header's totals count finished steps, and a counter that took a small
        step's difference before the step itself would go back for a moment, which Prometheus takes for a restart.
        """
        slots, doubles = self.slots, self.doubles
        if flags & _CONFIGURED:
            slots[at + ring.GLOBAL_BATCH_SIZE] = self.batch
            slots[at + ring.SEQUENCE_LENGTH] = self.length
            slots[at + ring.RECOMPUTE_NUMBER] = self.recompute
        if flags & _NEW_TOKENS and not flags & ring.FLAG_TOKENS:
            slots[at + ring.TOKENS] = self.tokens
            flags |= ring.FLAG_TOKENS
        tokens = slots[at + ring.TOKENS] if flags & ring.FLAG_TOKENS else self.usual_tokens
        if flags & _NEW_FLOPS and not flags & ring.FLAG_FLOPS:
            doubles[at + ring.FLOPS] = tokens * self.flops_per_token
            flags |= ring.FLAG_FLOPS
        flops = doubles[at + ring.FLOPS] if flags & ring.FLAG_FLOPS else tokens * self.flops_per_token
        slots[at + ring.FLAGS] = flags & ~(_NEW_TOKENS | _NEW_FLOPS)
        try:
            slots[ring.TOKENS_EXTRA_SLOT] += tokens - self.usual_tokens
            doubles[ring.FLOPS_EXTRA_SLOT] += flops - self.usual_flops
        except (ValueError, OverflowError):
            pass  # 2**63 tokens: not in this universe

    def set_tokens(self, tokens: int) -> None:
        """Tokens per step, from the step under way on."""
        self.tokens = tokens
        self.keep(_NEW_TOKENS)

    def set_flops_per_token(self, flops: float) -> None:
        """FLOPs per token, from the step under way on."""
        self.flops_per_token = flops
        self.keep(_NEW_FLOPS)

    def keep(self, flag: int) -> None:
        """Set a flag for the step under way and all that follow."""
        self.flags |= flag
        self.lasting |= flag


class Part:
    """``with run.part("data"):``."""

    __slots__ = ("number", "slots", "started", "total")

    def __init__(self, slots: memoryview[int], number: int) -> None:
        self.slots = slots
        self.number = number
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
        slots[_PART_TOTALS + self.number] = total
        slots[_PART] = 0


class TaggedPart(Part):
    """A checkpoint or an evaluation: the step that it falls into, or that follows it, is tagged."""

    __slots__ = ("bit", "step")

    def __init__(self, slots: memoryview[int], number: int, step: Step, bit: int) -> None:
        super().__init__(slots, number)
        self.step = step
        self.bit = bit

    def __enter__(self) -> None:
        self.step.flags |= self.bit
        super().__enter__()


class PlacePart(Part):
    """A part that tells where the rank is, and whose time is counted by other means."""

    __slots__ = ()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.slots[_PART_STARTED] = _now()
        self.slots[_PART] = 0
