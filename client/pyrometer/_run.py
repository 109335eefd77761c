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


class _Step:
    """``with run.step():``, one object for all steps of a run, so that a step allocates nothing.

    ``benchmarks/bench_client.py`` measures it. Item assignment on a memoryview costs a tenth of struct.pack_into;
    the place of the next record is kept rather than computed.
    """

    __slots__ = ("at", "count", "flags", "slots", "started", "total")

    def __init__(self, slots: memoryview[int]) -> None:
        self.slots = slots
        self.at = ring.FIRST_RECORD_SLOT
        self.count = 0
        self.total = 0
        self.flags = 0
        self.started = 0

    def __enter__(self) -> None:
        self.started = self.slots[_STEP_STARTED] = _now()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        end = _now()
        slots = self.slots
        if kind is not None:
            slots[_STEP_STARTED] = 0  # a step left by an exception did not happen: no record, no time
            return
        at = self.at
        started = self.started
        self.count = count = self.count + 1
        slots[at] = count
        slots[at + 1] = started
        slots[at + 2] = end
        slots[at + 3] = self.flags
        self.total = slots[_STEP_TOTAL] = self.total + end - started
        slots[_COUNT] = count  # last: a record below the count is whole
        self.flags = 0
        at += _SLOTS
        self.at = at if at < _END else _FIRST


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
        self._tokens_per_step = tokens_per_step
        self._flops_per_token = flops_per_token
        self._use(memory)

    def step(self) -> _Step:
        """One training step: ``with run.step():`` around everything that belongs to it, data loading included."""
        return self._step

    def part(self, name: str) -> _Part:
        """A part of the step: one of PARTS. An unknown name is measured nowhere."""
        return self._parts.get(name, self._no_part)

    def tag(self, name: str) -> None:
        """Mark the step under way (or, between steps, the next) as one of TAGS; tagged steps never alert."""
        self._step.flags |= ring.TAG_BITS.get(name, 0)

    def record(
        self, *, loss: float | None = None, grad_norm: float | None = None, tokens: int | None = None,
        flops: float | None = None,
    ) -> None:  # fmt: skip
        """Values of the step under way: loss, gradient norm, and tokens or FLOPs where they differ from the default.

        Give numbers that are on the CPU already: turning a GPU tensor into a number here would wait for the GPU.
        """
        step = self._step
        at = step.at
        try:
            if loss is not None:
                self._doubles[at + ring.LOSS] = loss
                step.flags |= ring.FLAG_LOSS
            if grad_norm is not None:
                self._doubles[at + ring.GRAD_NORM] = grad_norm
                step.flags |= ring.FLAG_GRAD_NORM
            if tokens is not None:
                self._override_tokens(at, tokens)
            if flops is not None:
                self._override_flops(at, flops)
        except (TypeError, ValueError, OverflowError):
            pass  # not a number: the step counts, the value is absent

    def close(self) -> None:
        """The run has ended well: its series end, and its silence is no hang. Called at exit as well."""
        self._step.slots[ring.STATE_SLOT] = ring.CLOSED
        self._stop("closed")

    def _override_tokens(self, at: int, tokens: int) -> None:
        slots = self._step.slots
        before = slots[at + ring.TOKENS] if self._step.flags & ring.FLAG_TOKENS else self._tokens_per_step
        slots[at + ring.TOKENS] = tokens
        slots[ring.TOKENS_EXTRA_SLOT] += tokens - before
        self._step.flags |= ring.FLAG_TOKENS
        if not self._step.flags & ring.FLAG_FLOPS:
            self._doubles[ring.FLOPS_EXTRA_SLOT] += (tokens - before) * self._flops_per_token

    def _override_flops(self, at: int, flops: float) -> None:
        flags, slots = self._step.flags, self._step.slots
        tokens = slots[at + ring.TOKENS] if flags & ring.FLAG_TOKENS else self._tokens_per_step
        before = self._doubles[at + ring.FLOPS] if flags & ring.FLAG_FLOPS else tokens * self._flops_per_token
        self._doubles[at + ring.FLOPS] = flops
        self._doubles[ring.FLOPS_EXTRA_SLOT] += flops - before
        self._step.flags |= ring.FLAG_FLOPS

    def _use(self, memory: memoryview) -> None:
        slots: memoryview[int] = memory.cast("q")
        self._doubles: memoryview[float] = memory.cast("d")
        self._step = _Step(slots)
        self._parts = {name: _Part(slots, number) for number, name in enumerate(PARTS)}
        self._no_part = _Part(memoryview(bytearray(ring.HEADER_BYTES)).cast("q"), 0)

    def _stop(self, why: str) -> None:
        """From now on all calls write into memory of nobody's: no check is needed on the hot path."""
        if self.disabled is None:
            self.disabled = why
            # The objects that a surrounding `with` still holds must let go of the ring too.
            held: list[_Step | _Part] = [self._step, *self._parts.values()]
            self._use(_scratch())
            for item in held:
                item.slots = self._step.slots
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1


def start(
    run: str,
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
        run: the run's name; stays the same over restarts.
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
        made.disabled = f"{type(error).__name__}: {error}"
        _tell(given, f"not recording run {run!r}: {made.disabled}")
    if unknown:
        _tell(given, f"unknown settings ignored: {', '.join(sorted(unknown))}")
    return made


def _start(given: dict[str, Any]) -> Run:
    import json  # noqa: PLC0415  3 ms that `import pyrometer` need not cost

    meta = _meta(given)
    folder = str(given["rings"] or os.environ.get("PYROMETER_RINGS") or ring.DEFAULT_FOLDER)
    safe = "".join(c if c.isalnum() or c in "-_" else "_" for c in str(meta["run"]))[:64]
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


def _meta(given: dict[str, Any]) -> dict[str, Any]:
    """The run's description as it stands in the ring's header."""
    env = os.environ
    local = _int(given["local_rank"], _environment.local_rank(env))
    index, uuid = _environment.gpu(env, local)
    rank = _int(given["rank"], _environment.rank(env))
    plain = ("model", "convention", "dtype", "stage", "replica", "recompute")
    meta: dict[str, Any] = {key: str(given[key]) for key in plain}
    meta.update(
        run=str(given["run"]),
        rank=rank,
        local_rank=local,
        world_size=_int(given["world_size"], _environment.world_size(env)),
        attempt=_int(given["attempt"], _environment.attempt(env)),
        job_id=_str(given["job_id"], _environment.job_id(env)),
        gpu=_str(given["gpu"], index),
        uuid=_str(given["uuid"], uuid),
        gpu_model=_str(given["gpu_model"], _torch_gpu_model()),
        reporting=rank == 0,
        first_step=_int(given["first_step"], 0),
        warmup_steps=_int(given["warmup_steps"], WARMUP_STEPS),
    )
    for key in ("tokens_per_step", "global_batch_size", "micro_batch_size", "sequence_length"):
        meta[key] = None if given[key] is None else int(given[key])
    for key in ("flops_per_token", "peak_flops"):
        meta[key] = None if given[key] is None else float(given[key])
    return meta


def _int(value: int | str | None, default: int) -> int:
    return default if value is None else int(value)


def _str(value: object, default: str) -> str:
    return default if value is None else str(value)


def _torch_gpu_model() -> str:
    """The GPU's name where torch is loaded and has CUDA up already; torch is never imported or woken for it."""
    torch = sys.modules.get("torch")
    try:
        return str(torch.cuda.get_device_name()) if torch and torch.cuda.is_initialized() else ""
    except Exception:  # noqa: BLE001  a stubbed or half-imported torch
        return ""


def _scratch() -> memoryview:
    return memoryview(bytearray(ring.FILE_BYTES))


def _tell(given: dict[str, Any], message: str) -> None:
    """One line, from one rank of a node, at the start only."""
    if not given.get("local_rank") and _environment.local_rank(os.environ) == 0:
        try:
            sys.stderr.write(f"pyrometer: {message}\n")
        except Exception:  # noqa: BLE001  a closed or replaced stderr
            pass


class _Minder:
    """Closes runs at exit and cuts them off in forked children, such as data loader workers."""

    def __init__(self) -> None:
        self.runs: weakref.WeakSet[Run] = weakref.WeakSet()
        atexit.register(self.close_all)
        os.register_at_fork(after_in_child=self.cut_all)

    def close_all(self) -> None:
        for run in list(self.runs):
            if run.disabled is None:
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
