"""The run object: what the training loop calls. The hot path is :class:`_Step` and :class:`_Part`."""

from __future__ import annotations

import atexit
import os
import sys
import time
import weakref

from pyrometer import _environment, _writer, ring
from pyrometer.ring import PARTS

TYPE_CHECKING = False  # typing.TYPE_CHECKING without importing typing, which takes half of what the import may cost
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any

# The first steps compile, tune and fill caches; mfu.md's sources leave out the first ten.
WARMUP_STEPS = 10

_now = time.monotonic_ns
_COUNT, _STEP_STARTED, _STEP_TOTAL = ring.COUNT_SLOT, ring.STEP_STARTED_SLOT, ring.STEP_TOTAL_SLOT
_PART, _PART_STARTED = ring.PART_SLOT, ring.PART_STARTED_SLOT
_FIRST, _END, _SLOTS = ring.FIRST_RECORD_SLOT, ring.FILE_BYTES // 8, ring.RECORD_SLOTS
_OVERRIDES = ring.FLAG_TOKENS | ring.FLAG_FLOPS
# Beyond these a number is a mistake; the sums in the header could not hold it.
_MAX_TOKENS, _MAX_FLOPS = 1 << 53, 1e30


class _Step:
    """``with run.step():``, one object for all steps of a run, so that a step allocates nothing.

    ``benchmarks/bench_client.py`` measures it. Item assignment on a memoryview costs a tenth of struct.pack_into;
    the place of the next record is kept rather than computed.
    """

    __slots__ = ("at", "count", "doubles", "flags", "flops_per_token", "slots", "started", "tokens", "total")

    def __init__(self, memory: memoryview, tokens: int, flops_per_token: float) -> None:
        self.tokens = tokens
        self.flops_per_token = flops_per_token
        self.at = ring.FIRST_RECORD_SLOT
        self.count = 0
        self.total = 0
        self.flags = 0
        self.started = 0
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
            # A step left by an exception did not happen: no record, no time, and its values are not the next step's.
            slots[_STEP_STARTED] = 0
            self.flags = 0
            return
        at = self.at
        started = self.started
        flags = self.flags
        self.count = count = self.count + 1
        slots[at] = count
        slots[at + 1] = started
        slots[at + 2] = end
        slots[at + 3] = flags
        self.total = slots[_STEP_TOTAL] = self.total + end - started
        if flags & _OVERRIDES:
            self.settle(at, flags)
        slots[_COUNT] = count  # last: a record below the count is whole
        self.flags = 0
        at += _SLOTS
        self.at = at if at < _END else _FIRST

    def settle(self, at: int, flags: int) -> None:
        """Add what a finished step had above or below the default to the header.

        Only now, not in :meth:`Run.record`: the header's totals count finished steps, and a counter that took a small
        step's difference before the step itself would go back for a moment, which Prometheus takes for a restart.
        """
        slots, doubles, usual = self.slots, self.doubles, self.tokens
        tokens = slots[at + ring.TOKENS] if flags & ring.FLAG_TOKENS else usual
        flops = doubles[at + ring.FLOPS] if flags & ring.FLAG_FLOPS else tokens * self.flops_per_token
        try:
            slots[ring.TOKENS_EXTRA_SLOT] += tokens - usual
            doubles[ring.FLOPS_EXTRA_SLOT] += flops - usual * self.flops_per_token
        except (ValueError, OverflowError):
            pass  # 2**63 tokens: not in this universe


class _Part:
    """``with run.part("data"):``, one object per part."""

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
        self.total = total = self.total + _now() - self.started
        slots = self.slots
        slots[ring.PART_TOTALS_SLOT + self.number] = total
        slots[_PART] = 0


class Run:
    """A rank's part of a training run. Made by :func:`start`; every method is safe to call in any state.

    Attributes:
        disabled: None while records are written, else why not.
        path: the ring file; empty where there is none.
    """

    def __init__(self, memory: memoryview, tokens_per_step: int, flops_per_token: float) -> None:
        self.disabled: str | None = None
        self.path = ""
        self._fd = -1
        self._step = _Step(memory, tokens_per_step, flops_per_token)
        self._parts = {name: _Part(self._step.slots, number) for number, name in enumerate(PARTS)}
        self._no_part = _Part(_scratch().cast("q"), 0)

    def step(self) -> _Step:
        """One training step: ``with run.step():`` around everything that belongs to it, data loading included."""
        return self._step

    def part(self, name: str) -> _Part:
        """A part of the step: one of PARTS. An unknown name is measured nowhere."""
        try:
            return self._parts[name]
        except Exception:  # noqa: BLE001  an unknown name, or one that can't be hashed
            return self._no_part

    def tag(self, name: str) -> None:
        """Mark the step under way (or, between steps, the next) as one of TAGS; tagged steps never alert."""
        try:
            self._step.flags |= ring.TAG_BITS[name]
        except Exception:  # noqa: BLE001  as in part
            pass

    def record(
        self, *, loss: float | None = None, grad_norm: float | None = None, tokens: int | None = None,
        flops: float | None = None, **_unknown: object,
    ) -> None:  # fmt: skip
        """Values of the step under way: loss, gradient norm, and tokens or FLOPs where they differ from the default.

        Give numbers that are on the CPU already: turning a GPU tensor into a number here would wait for the GPU.
        What is not a number (of tokens or FLOPs: not a finite one from 0 on) is absent; the step counts all the same.
        """
        if loss is not None:
            self._put(ring.LOSS, ring.FLAG_LOSS, loss)
        if grad_norm is not None:
            self._put(ring.GRAD_NORM, ring.FLAG_GRAD_NORM, grad_norm)
        if tokens is not None or flops is not None:
            self._override(tokens, flops)

    def close(self) -> None:
        """The run has ended well: its series end, and its silence is no hang.

        Called at exit as well, unless an uncaught exception was what ended the process.
        """
        self._step.slots[ring.STATE_SLOT] = ring.CLOSED
        self._stop("closed")

    def __del__(self) -> None:
        """A run that nobody holds any more has ended; its descriptor, and with it the lock, must not stay behind."""
        if getattr(self, "_fd", -1) >= 0:
            self.close()

    def _put(self, slot: int, flag: int, value: float) -> None:
        step = self._step
        try:
            step.doubles[step.at + slot] = value
        except Exception:  # noqa: BLE001  a tensor of several elements raises RuntimeError, others whatever they like
            return
        step.flags |= flag

    def _override(self, tokens: int | None, flops: float | None) -> None:
        step = self._step
        try:
            if tokens is not None and 0 <= tokens < _MAX_TOKENS:
                step.slots[step.at + ring.TOKENS] = int(tokens)
                step.flags |= ring.FLAG_TOKENS
        except Exception:  # noqa: BLE001  as in _put
            pass
        try:
            if flops is not None and 0 <= flops < _MAX_FLOPS:
                step.doubles[step.at + ring.FLOPS] = flops
                step.flags |= ring.FLAG_FLOPS
        except Exception:  # noqa: BLE001  as in _put
            pass

    def _stop(self, why: str) -> None:
        """From now on all calls write into memory of nobody's: no check is needed on the hot path.

        The objects stay, as a surrounding ``with`` may hold them; but nothing may hold the ring any more.
        """
        if self.disabled is None:
            self.disabled = why
            self._step.use(_scratch())
            for part in self._parts.values():
                part.slots = self._step.slots
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1


def start(
    run: str = "unnamed",
    *,
    flops_per_token: float | None = None,
    tokens_per_step: int | None = None,
    peak_flops: float | None = None,
    model: str = "",
    convention: str = "",
    dtype: str = "",
    gpu_model: str | None = None,
    rank: int | None = None,
    local_rank: int | None = None,
    world_size: int | None = None,
    attempt: int | None = None,
    stage: str = "",
    replica: str = "",
    global_batch_size: int | None = None,
    micro_batch_size: int | None = None,
    sequence_length: int | None = None,
    recompute: str = "",
    job_id: str | None = None,
    gpu: str | None = None,
    uuid: str | None = None,
    first_step: int = 0,
    warmup_steps: int = WARMUP_STEPS,
    rings: str | None = None,
    **unknown: object,
) -> Run:
    """Begin reporting; call once per rank, before the loop. Never raises: what fails gives a run that records nothing.

    Args:
        run: the run's name; stays the same over restarts. Optional only because nothing here may raise.
        flops_per_token: model FLOPs per token, forward and backward.
        tokens_per_step: tokens of the whole global batch.
        peak_flops: peak dense FLOP/s of one GPU, where its name alone would not tell.
        model: the model's name.
        convention: how ``flops_per_token`` was counted: palm, megatron, bloom_hw, hf.
        dtype: bf16, fp16, fp8, ...
        gpu_model: the GPU's name; asked of torch where torch is loaded already.
        rank: and ``local_rank``, ``world_size``, ``attempt``, ``job_id``: from the launcher's environment if not given.
        local_rank: the rank within the node.
        world_size: how many GPUs the step's FLOPs are spread over.
        attempt: how often the run has been restarted.
        stage: the pipeline stage.
        replica: the data-parallel replica.
        global_batch_size: in sequences; with the next three it tells configurations apart.
        micro_batch_size: in sequences.
        sequence_length: in tokens.
        recompute: none, selective or full.
        job_id: the scheduler's job.
        gpu: index of this rank's GPU; from CUDA_VISIBLE_DEVICES if not given.
        uuid: UUID of this rank's GPU.
        first_step: number of the first step, after a restart from a checkpoint.
        warmup_steps: how many first steps don't count for alerts.
        rings: folder of the rings; $PYROMETER_RINGS or /dev/shm/pyrometer if not given.
        unknown: anything else is named on standard error and ignored: a typing error must not cost a job its start.
    """
    given = dict(locals())
    try:
        made = _start(given)
    except Exception as error:  # noqa: BLE001  the promise of this module
        made = Run(_scratch(), 0, 0.0)
        made.disabled = type(error).__name__
        _tell(given, "not recording run {0!r}: {1}: {2}", run, made.disabled, error)
    if unknown:
        _tell(given, "unknown settings ignored: {0}", ", ".join(sorted(unknown)))
    return made


def _start(given: dict[str, Any]) -> Run:
    import json  # noqa: PLC0415  3 ms that `import pyrometer` need not cost

    meta = _environment.describe(given, WARMUP_STEPS)
    folder = str(given["rings"] or os.environ.get("PYROMETER_RINGS") or ring.DEFAULT_FOLDER)
    safe = "".join(c if (c.isascii() and c.isalnum()) or c in "-_" else "_" for c in str(meta["run"]))[:64]
    name = f"{safe}.{meta['rank']}.{os.getpid()}.{_now()}"
    mapping, fd, path = _writer.create(folder, name, json.dumps(meta).encode())
    run = Run(memoryview(mapping), int(meta["tokens_per_step"] or 0), float(meta["flops_per_token"] or 0.0))
    run.path = path
    run._fd = fd  # noqa: SLF001
    _mind(run)
    try:
        _writer.sweep(folder)
    except OSError:
        pass  # another rank swept at the same time
    return run


def _scratch() -> memoryview:
    return memoryview(bytearray(ring.FILE_BYTES))


def _tell(given: dict[str, Any], form: str, *values: object) -> None:
    """One line, from one rank of a node, at the start only."""
    try:
        if not given.get("local_rank") and _environment.local_rank(os.environ) == 0:
            sys.stderr.write(f"pyrometer: {form.format(*values)}\n")
    except Exception:  # noqa: BLE001  a closed or replaced stderr, a run's name that can't be printed
        pass


class _Minder:
    """Closes runs at exit and cuts them off in forked children, such as data loader workers."""

    def __init__(self) -> None:
        self.runs: weakref.WeakSet[Run] = weakref.WeakSet()
        atexit.register(self.close_all)
        os.register_at_fork(after_in_child=self.cut_all)

    def close_all(self) -> None:
        # After an uncaught exception the run has not ended well: its ring shall look like a crash, which it was.
        # Ctrl-C is no Exception: whoever pressed it knows.
        uncaught = getattr(sys, "last_type", None)
        crashed = isinstance(uncaught, type) and issubclass(uncaught, Exception)
        for run in list(self.runs):
            if crashed:
                run._stop("crashed")  # noqa: SLF001
            elif run.disabled is None:
                run.close()

    def cut_all(self) -> None:
        for run in list(self.runs):
            run._stop("forked child")  # noqa: SLF001


_minder: _Minder | None = None


def _mind(run: Run) -> None:
    global _minder  # noqa: PLW0603  one hook per process: os.register_at_fork has no way to unregister
    if _minder is None:
        _minder = _Minder()
    _minder.runs.add(run)
