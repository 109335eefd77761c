"""The run object: what the training loop calls."""

from __future__ import annotations

import os
import sys
import time

from pyrometer import _environment, _writer, ring
from pyrometer._cuda import LateValues, WaitPart
from pyrometer._minder import mind
from pyrometer._pauses import Pauses
from pyrometer._step import Part, PlacePart, Step, TaggedPart, scratch
from pyrometer.ring import PARTS

TYPE_CHECKING = False  # typing.TYPE_CHECKING without importing typing, which takes half of what the import may cost
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any

    from pyrometer._notices import Notices

# The first steps compile, tune and fill caches; those who published their MFU leave out the first ten or so.
WARMUP_STEPS = 10

# Beyond these a number is a mistake; the sums in the header could not hold it.
_MAX_TOKENS, _MAX_FLOPS = 1 << 53, 1e30


class Run:
    """A rank's part of a training run. Made by :func:`start`; every method is safe to call in any state.

    As a context manager it is closed at the end of the block, and left as crashed by an exception: the way to be exact
    about how a run ends.

    Attributes:
        disabled: None while records are written, else why not.
        path: the ring file; empty where there is none.
    """

    def __init__(self, memory: memoryview, meta: dict[str, Any]) -> None:
        self.disabled: str | None = None
        self.path = ""
        self._fd = -1
        self._usual = {name: meta.get(name) or 0 for name in ("global_batch_size", "sequence_length")}
        self._step = Step(memory, int(meta.get("tokens_per_step") or 0), float(meta.get("flops_per_token") or 0.0))
        self._parts = {name: _part(self._step, number, name) for number, name in enumerate(PARTS)}
        self._no_part = Part(scratch().cast("q"), 0)
        self._late: LateValues | None = None
        self._pauses: Pauses | None = None
        self._notices: Notices | None = None

    def step(self) -> Step:
        """One training step: ``with run.step():`` around everything that belongs to it, data loading included."""
        return self._step

    def tick(self, **values: Any) -> None:  # noqa: ANN401  those of record
        """Where there is no block to put ``step`` around: a step is from one tick to the next. ``values`` as in record.

        Evaluations and checkpoints are noticed where PyTorch tells them (:class:`pyrometer._notices.Notices`);
        elsewhere name them, with ``part``, or a hang is noticed late. After the last step: ``close``.
        """
        if values:
            self.record(**values)
        step = self._step
        if not step.plain:
            self._prepare_tick()
        step.tick()

    def part(self, name: str) -> Part:
        """A part of the step: one of PARTS. An unknown name is measured nowhere.

        ``wait`` is timed on the GPU where torch uses one; ``checkpoint`` and ``eval`` tag the step; of ``gc`` the time
        is that of all collections, wherever they happen.
        """
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
        flops: float | None = None, **lasting: object,
    ) -> None:  # fmt: skip
        """Values of the step under way: loss, gradient norm, and tokens or FLOPs where they differ from the default.

        What is not a number (of tokens or FLOPs: not a finite one from 0 on) is absent; the step counts all the same.
        A tensor on a GPU is not waited for: its number stands at the next step that records one.

        ``global_batch_size``, ``sequence_length``, ``recompute``, ``tokens_per_step`` and ``flops_per_token`` hold from
        this step on: give them where they change. Tokens per step follow the first two; FLOPs per token don't, so give
        those along with a new sequence length.
        """
        if loss is not None:
            self._put(ring.LOSS, ring.FLAG_LOSS, loss)
        if grad_norm is not None:
            self._put(ring.GRAD_NORM, ring.FLAG_GRAD_NORM, grad_norm)
        if tokens is not None or flops is not None:
            self._override(tokens, flops)
        if lasting:
            self._change(lasting)

    def close(self) -> None:
        """The run has ended well: its series end, and its silence is no hang.

        Called at exit as well, unless an uncaught exception or ``sys.exit`` with an error was what ended the process.
        """
        self._step.slots[ring.STATE_SLOT] = ring.CLOSED
        self.abandon("closed")

    def abandon(self, why: str) -> None:
        """Record nothing any more, without a good end: the rank looks as if it had crashed.

        From now on all calls write into memory of nobody's: no check is needed on the hot path. The objects stay, as a
        surrounding ``with`` may hold them; but nothing may hold the ring any more.
        """
        if self.disabled is None:
            self.disabled = why
            self._step.slots[ring.STACK_SIGNAL_SLOT] = 0
            self._step.use(scratch())
            for part in self._parts.values():
                part.slots = self._step.slots
            if self._pauses is not None:
                self._pauses.stop()
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1

    def attach(self, fd: int, path: str) -> None:
        """The ring's descriptor, which holds its lock, and its path: from now on this is a run in earnest."""
        self._fd = fd
        self.path = path
        self._pauses = Pauses(self._step)

    def dump_stacks(self, wanted: object) -> None:
        """Have a signal dump the stacks beside the ring. Raises what :func:`pyrometer._stacks.arrange` does."""
        from pyrometer import _stacks  # noqa: PLC0415  needed by few

        path = self.path.removesuffix(ring.SUFFIX) + ring.STACKS_SUFFIX
        self._step.slots[ring.STACK_SIGNAL_SLOT] = _stacks.arrange(path, wanted)

    def steps_finished(self) -> int:
        """How many steps were recorded."""
        return self._step.count

    def left_badly(self) -> bool:
        """Whether the last thing that happened was ``sys.exit`` with an error inside a step."""
        return self._step.left_at == self._step.count

    def __enter__(self) -> Run:  # noqa: PYI034  typing has no Self in Python 3.10
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        well = kind is None or kind is KeyboardInterrupt or (isinstance(error, SystemExit) and error.code in (None, 0))
        if well:
            self.close()
        else:
            self.abandon("crashed")

    def __del__(self) -> None:
        """A run that nobody holds any more has ended; its descriptor, and with it the lock, must not stay behind."""
        if getattr(self, "_fd", -1) >= 0:
            self.close()

    def _prepare_tick(self) -> None:
        try:
            if self._notices is None:
                from pyrometer._notices import Notices  # noqa: PLC0415  for those who tick

                self._notices = Notices(self._step, self._parts["checkpoint"], self._parts["eval"])
            self._notices.tick()
        except Exception:  # noqa: BLE001  a stubbed or half-imported torch
            pass
        self._step.plain = True

    def _put(self, slot: int, flag: int, value: Any) -> None:  # noqa: ANN401  a number, or what the job thinks is one
        step = self._step
        try:
            if type(value) is not float:
                value = self._number(slot, value)
                if value is None:
                    return
            step.doubles[step.at + slot] = value
        except Exception:  # noqa: BLE001  a tensor of several elements raises RuntimeError, others whatever they like
            return
        step.flags |= flag

    def _number(self, slot: int, value: Any) -> float | None:  # noqa: ANN401  as in _put
        """A tensor's number, where it can be had without waiting; anything else as it is. Raises what torch does."""
        if getattr(value, "is_cuda", False) is True:
            self._late = self._late or LateValues()
            return self._late.swap(slot, value)
        if getattr(value, "requires_grad", False) is True:
            return float(value.detach())  # or torch warns
        return value  # type: ignore[no-any-return]

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

    def _change(self, lasting: dict[str, object]) -> None:
        for name, value in lasting.items():
            try:
                self._change_one(name, value)
            except Exception:  # noqa: BLE001  as in _put
                pass

    def _change_one(self, name: str, value: Any) -> None:  # noqa: ANN401  as in _put
        step = self._step
        if value is None:
            return
        if name == "recompute":
            step.recompute = ring.RECOMPUTE.index(value)
            step.keep(ring.FLAG_RECOMPUTE)
        elif name == "flops_per_token" and 0 < value < _MAX_FLOPS:
            step.set_flops_per_token(float(value))
        elif name == "tokens_per_step" and 0 < value < _MAX_TOKENS:
            step.set_tokens(int(value))
        elif name == "global_batch_size" and 0 < value < _MAX_TOKENS:
            step.batch = int(value)
            step.keep(ring.FLAG_GLOBAL_BATCH_SIZE)
            self._change_tokens()
        elif name == "sequence_length" and 0 < value < _MAX_TOKENS:
            step.length = int(value)
            step.keep(ring.FLAG_SEQUENCE_LENGTH)
            self._change_tokens()

    def _change_tokens(self) -> None:
        """Tokens per step in proportion to what they were; else batch size times length, where both are known."""
        step, usual_batch, usual_length = self._step, self._usual["global_batch_size"], self._usual["sequence_length"]
        batch, length = step.batch or usual_batch, step.length or usual_length
        known = (usual_batch or not step.batch) and (usual_length or not step.length)
        if step.usual_tokens and known:
            was = (usual_batch or 1) * (usual_length or 1)
            step.set_tokens(step.usual_tokens * (batch or 1) * (length or 1) // was)
        elif batch and length:
            step.set_tokens(batch * length)


def _part(step: Step, number: int, name: str) -> Part:
    if name == "wait":
        return WaitPart(step.slots, number, step)
    if name == "gc":
        return PlacePart(step.slots, number)
    if name in ring.TAG_BITS:
        return TaggedPart(step.slots, number, step, ring.TAG_BITS[name])
    return Part(step.slots, number)


def start(
    run: str = "unnamed",
    *,
    flops_per_token: float | None = None,
    tokens_per_step: int | None = None,
    peak_flops: float | None = None,
    expected_mfu: float | None = None,
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
    stacks: object = None,
    **unknown: object,
) -> Run:
    """Begin reporting; call once per rank, before the loop. Never raises: what fails gives a run that records nothing.

    Args:
        run: the run's name; stays the same over restarts. Optional only because nothing here may raise.
        flops_per_token: model FLOPs per token, forward and backward.
        tokens_per_step: tokens of the whole global batch.
        peak_flops: peak dense FLOP/s of one GPU, where its name alone would not tell.
        expected_mfu: what this configuration reaches, 0 to 1; learned from earlier runs if not given.
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
        stacks: True to have the exporter ask this rank for its stacks when the run hangs, with SIGUSR2 (or with the
            signal given); $PYROMETER_STACKS=1 if not given. Not where the job uses that signal itself.
        unknown: anything else is named on standard error and ignored: a typing error must not cost a job its start.
    """
    given = dict(locals())
    try:
        made = _start(given)
    except Exception as error:  # noqa: BLE001  the promise of this module
        made = Run(scratch(), {})
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
    name = f"{safe}.{meta['rank']}.{os.getpid()}.{time.monotonic_ns()}"
    mapping, fd, path = _writer.create(folder, name, json.dumps(meta).encode())
    run = Run(memoryview(mapping), meta)
    run.attach(fd, path)
    mind(run)
    _arrange_stacks(run, given)
    try:
        _writer.sweep(folder)
    except OSError:
        pass  # another rank swept at the same time
    return run


def _arrange_stacks(run: Run, given: dict[str, Any]) -> None:
    wanted = given["stacks"]
    try:
        if wanted is None:
            wanted = os.environ.get("PYROMETER_STACKS") == "1"
        if wanted:
            run.dump_stacks(wanted)
    except Exception as error:  # noqa: BLE001  the promise of this module
        _tell(given, "no stack dumps: {0}", error)


def _tell(given: dict[str, Any], form: str, *values: object) -> None:
    """One line, from one rank of a node, at the start only."""
    try:
        if not given.get("local_rank") and _environment.local_rank(os.environ) == 0:
            sys.stderr.write(f"pyrometer: {form.format(*values)}\n")
    except Exception:  # noqa: BLE001  a closed or replaced stderr, a run's name that can't be printed
        pass
