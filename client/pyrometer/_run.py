"""The run object: the interface between the training loop and the ring."""

from __future__ import annotations

import os
import sys

from pyrometer import ring
from pyrometer._changes import SETTINGS, Changes
from pyrometer._cuda import DeferredValues, WaitPart
from pyrometer._gc_pauses import GcPauseCounter
from pyrometer._names import Names
from pyrometer._shutdown import child_failed, exit_of, failure_of
from pyrometer._step import Part, Step, TaggedPart, UntimedPart, scratch_memory
from pyrometer.ring import PARTS

TYPE_CHECKING = False  # typing.TYPE_CHECKING without importing typing, a large part of what the import would cost
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any

    from pyrometer._pause_detection import PauseDetector
    from pyrometer._wait_detection import WaitDetector


class Run:
    """One rank of a training run. Made by :func:`start`; every method is safe to call in any state.

    Use ``with`` to tell a clean end from a crash: the run is closed at the end of the block, and left as crashed by an
    exception.

    Attributes:
        disabled: None while records are written, else the reason.
        path: The ring file; empty where there is none.
        identity: The folder of its ring, its name, attempt and rank.
        awaits_close: Whether a trainer closes it where training ends well, so that anything else is a failure.
    """

    def __init__(self, memory: memoryview, description: dict[str, Any], fd: int = -1, path: str = "") -> None:
        """Record into ``memory``, laid out as a ring; ``fd`` holds the lock of the file at ``path``, where one is."""
        self.disabled: str | None = None
        self.path = path
        self._fd = -1
        self.identity: tuple[object, ...] = ()
        self.identify(path, description)
        self.awaits_close = False
        self._handled = id(sys.exc_info()[1])  # a second try, in the handler of what ended the first
        tokens, flops_per_token = description.get("tokens_per_step"), description.get("flops_per_token")
        self._step = Step(memory, int(tokens or 0), float(flops_per_token or 0.0))
        self._parts = {name: _make_part(self._step, number, name) for number, name in enumerate(PARTS)}
        self._numbered: list[Part | None] = [None, *self._parts.values()]
        self._names = Names(self._step)
        self._changes = Changes(self._step, self._names, description)
        self._unknown_part = Part(scratch_memory().cast("q"), 0)
        self._deferred: DeferredValues | None = None
        self._gc_pauses = GcPauseCounter(self._step) if fd >= 0 else None
        self._pause_detector: PauseDetector | None = None
        self._wait_detector: WaitDetector | None = None
        self._fd = fd  # last: __del__ closes a run that has one

    def identify(self, path: str, description: dict[str, Any]) -> None:
        """Set whose run it is: the folder of its ring, its name, attempt and rank."""
        self.identity = (os.path.dirname(path), *(description.get(key) for key in ("run", "attempt", "rank")))

    @property
    def descriptor(self) -> int:
        """The ring's open file, -1 where there is none."""
        return self._fd

    def step(self, *_ignored: object, **_more: object) -> Step:
        """Return the step: ``with run.step():`` around everything that belongs to one, data loading included."""
        return self._step

    def tick(self, /, *given: Any, **values: Any) -> None:  # noqa: ANN401  those of record
        """End a step and begin the next, in a loop without a block to put ``step`` around; values as in record.

        Evaluations and checkpoints are detected where PyTorch runs them
        (:class:`pyrometer._pause_detection.PauseDetector`); elsewhere mark them with ``part``, or a hang is detected
        late. After the last step: ``close``.
        """
        if given or values:
            self.record(*given, **values)
        step = self._step
        if not step.tick_ready:
            self._prepare_tick()
        step.tick()

    def part(self, name: str = "", *_ignored: object, **_more: object) -> Part:
        """Return a part of the step, to be used with ``with``. Up to eight names of your own are parts as well.

        ``wait`` is timed on the GPU where torch uses one; ``checkpoint`` and ``eval`` tag the step; the time of ``gc``
        is that of all garbage collections, wherever they happen.

        Args:
            name: One of :data:`pyrometer.PARTS`, or another of at most 32 bytes.
        """
        try:
            return self._parts[name]
        except Exception:  # noqa: BLE001  a new name, or one that can't be hashed
            return self._new_part(name)

    def tag(self, name: str = "", *_ignored: object, **_more: object) -> None:
        """Tag the step under way or, between steps, the next; an unknown tag is reported.

        A tagged step never alerts, save one tagged ``skipped``, which takes its usual time.

        Args:
            name: One of :data:`pyrometer.TAGS`.
        """
        try:
            self._step.flags |= ring.TAG_BITS[name]
        except Exception:  # noqa: BLE001  as in part
            self._drop("tag", name, f"tags are {', '.join(ring.TAGS)}")

    def record(
        self, /, *given: Any, loss: Any = None, grad_norm: float | None = None, tokens: int | None = None,  # noqa: ANN401
        flops: float | None = None, skipped: bool = False, **values: object,
    ) -> None:  # fmt: skip
        """Record values of the step under way.

        A value that is not a number (for tokens and FLOPs: not finite or negative) is left out; the step counts all the
        same. A tensor on a GPU is not waited for: its number is recorded with the next step that records one. Tokens,
        FLOPs, ``skipped`` and settings must not be a step late: of these a tensor on a GPU is reported and left out.

        Args:
            given: The loss, which may go without its name; any further value is reported once.
            loss: Loss of the step; or a dictionary of any of these by their names.
            grad_norm: Norm of its gradient.
            tokens: Tokens of this step, where they differ from ``tokens_per_step``.
            flops: FLOPs of this step, where they differ from ``flops_per_token`` times the tokens.
            skipped: True where the optimizer left the step out, as after an overflow of the loss scale.
            values: Metrics of your own, at most 16 a run, such as ``lr=1e-4``. Or settings that hold from this step on:
                ``global_batch_size``, ``sequence_length``, ``recompute``, ``tokens_per_step``, ``flops_per_token``.
                Tokens per step follow the first two; FLOPs per token don't, so give those along with a new sequence
                length.
        """
        if given:
            if loss is None:
                loss, *given = given  # type: ignore[assignment]
            if given:
                self._drop("value", given[0], "pass values by keyword: run.record(loss=..., lr=...)")
        if loss is not None:
            self._put(ring.LOSS, ring.FLAG_LOSS, loss)
        if grad_norm is not None:
            self._put(ring.GRAD_NORM, ring.FLAG_GRAD_NORM, grad_norm)
        if skipped is not False and self._changes.is_skip(skipped):
            self.tag("skipped")
        if tokens is not None or flops is not None:
            self._changes.override(tokens, flops)
        if values:
            self._set(values)

    def close(self, *_ignored: object, **_more: object) -> None:
        """Mark the run as ended well: its series end, and its silence is no hang.

        While an exception is handled, as in ``finally:`` on its way out, the run is left as crashed by it instead. A
        process that ends well closes its runs.
        """
        error = sys.exc_info()[1]
        self.end("" if id(error) == self._handled else failure_of(error))

    def end(self, failure: str = "") -> None:
        """Mark the run as ended well or, where there is a ``failure``, leave it as crashed by that."""
        if failure:
            self.crash(failure)
            return
        if self.disabled is None and self._step.device_times is not None:
            self._step.device_times.finish()
        self._step.slots[ring.STATE_SLOT] = ring.CLOSED
        self.abandon("closed")

    def abandon(self, reason: str) -> None:
        """Stop recording without a good end: the rank looks as if it had crashed.

        From now on all calls write to a private scratch buffer, so that the hot path needs no check. The objects stay,
        as a surrounding ``with`` may hold them, but none of them refers to the ring any more.
        """
        if self.disabled is None:
            self.disabled = reason
            self._step.slots[ring.STACK_SIGNAL_SLOT] = 0
            self._step.write_to(scratch_memory())
            self._names.stop()
            if self._step.device_times is not None:
                self._step.device_times.stop()
            for part in self._parts.values():
                part.slots = self._step.slots
            if self._gc_pauses is not None:
                self._gc_pauses.stop()
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1

    def take_ring(self, memory: memoryview, fd: int, path: str) -> tuple[memoryview[int], int, str]:
        """Write to another ring from now on. Return memory, descriptor and path of the one before."""
        before = self._step.slots, self._fd, self.path
        self._step.write_to(memory)
        for part in self._numbered[1:]:
            part.slots = self._step.slots  # type: ignore[union-attr]  # all but the first are parts
        if self._gc_pauses is None:
            self._gc_pauses = GcPauseCounter(self._step)
        self._gc_pauses.slots = self._step.slots
        self._names.move(fd)
        self._fd, self.path = fd, path
        return before

    def crash(self, how: str) -> None:
        """Leave the run as crashed; ``how`` is the exception's name or the exit status, for whoever asks why."""
        if self.disabled is None:
            if self._step.device_times is not None:
                self._step.device_times.finish()
            self.write_text(ring.EXIT_SLOT, ring.EXIT_BYTES, how)
            self.abandon("crashed")

    def write_text(self, slot: int, size: int, text: str) -> None:
        """Write a text of at most ``size`` bytes into the header, from ``slot`` on."""
        padded = text.encode("utf-8", "replace")[:size].ljust(size, b"\0")
        self._step.slots[slot : slot + size // 8] = memoryview(padded).cast("q")

    def say_through(self, say: Callable[[str], None]) -> None:
        """Have what can't be recorded reported by ``say``, one line each."""
        self._names.say = say

    def observe(self, observer: Callable[[], bool]) -> None:
        """Call ``observer`` at the end of each step as long as it returns True."""
        self._step.observe(observer)

    def dump_stacks(self, signal_number: object) -> None:
        """Have a signal dump the stacks of all threads beside the ring.

        Raises:
            Exception: those of :func:`pyrometer._stack_dumps.dump_stacks_on_signal`.
        """
        from pyrometer._stack_dumps import dump_stacks_on_signal  # noqa: PLC0415  needed by few

        path = self.path.removesuffix(ring.SUFFIX) + ring.STACKS_SUFFIX
        self._step.slots[ring.STACK_SIGNAL_SLOT] = dump_stacks_on_signal(path, signal_number, os.fstat(self._fd))

    def time_on_device(self, *, enabled: bool) -> None:
        """Time steps on the GPU, once torch has initialised CUDA; if not ``enabled``, say that they are launches."""
        from pyrometer._device_times import DeviceTimes  # noqa: PLC0415  needed by the reporting rank

        self._step.time_on_device(DeviceTimes(self._step, enabled=enabled))

    def launches_only(self) -> None:
        """Say that the times of steps are those of their launch: a device without events works behind the host."""
        self._step.slots[ring.TIMING_SLOT] = ring.LAUNCH_TIME

    def detect_waits(self, unknown: Callable[[], None]) -> None:
        """Detect the waits of PyTorch's collectives from now on; call ``unknown`` if the first steps show none.

        Raises:
            Exception: those of :class:`pyrometer._wait_detection.WaitDetector`.
        """
        from pyrometer._wait_detection import WaitDetector  # noqa: PLC0415  needed by runs of several ranks

        self._wait_detector = WaitDetector(self._step, self._numbered)
        self._step.observe(self._wait_detector.observer(unknown))

    def steps_finished(self) -> int:
        """Return how many steps were recorded."""
        return self._step.count

    def failed_exit(self) -> str:
        """Return how a step failed, if that was the last thing that happened: by an exception, or an exit status."""
        step = self._step
        if step.failure and step.failure_count == step.count:
            return step.failure
        return "exception" if self.awaits_close and getattr(sys, "last_type", None) is not KeyboardInterrupt else ""

    def __enter__(self) -> Run:  # noqa: PYI034  typing has no Self in Python 3.10
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        clean = kind is None or kind is KeyboardInterrupt or (isinstance(error, SystemExit) and error.code in (None, 0))
        self.end("" if clean else exit_of(kind, error))

    def __reduce__(self) -> tuple[Callable[[], Run], tuple[()]]:
        """Pickle as a run that records nothing: a ring belongs to one process."""
        return _run_elsewhere, ()

    def __del__(self) -> None:
        """Close a run that is no longer referenced; its descriptor, and with it the lock, must not stay behind."""
        if getattr(self, "_fd", -1) < 0:
            return
        # Dropped together with the exception that ended its process, or the function that was training.
        self.end("exception" if child_failed() else self.failed_exit())

    def _prepare_tick(self) -> None:
        try:
            if self._pause_detector is None:
                from pyrometer._pause_detection import PauseDetector  # noqa: PLC0415  needed by loops that tick

                self._pause_detector = PauseDetector(self._step, self._parts["checkpoint"], self._parts["eval"])
            self._pause_detector.tick()
        except Exception:  # noqa: BLE001  a stubbed or half-imported torch
            pass
        self._step.tick_ready = True

    def _put(self, slot: int, flag: int, value: Any) -> None:  # noqa: ANN401  a number, or what the job takes for one
        step = self._step
        try:
            if type(value) is not float:
                if type(value) is dict:
                    self.record(**value)
                    return
                value = self._number(slot, value)
                if value is None:
                    return
            step.doubles[step.offset + slot] = value
        except Exception:  # noqa: BLE001  a tensor of several elements raises RuntimeError, others whatever they like
            return
        step.flags |= flag

    def _number(self, slot: int, value: Any) -> float | None:  # noqa: ANN401  as in _put
        """Return a tensor's number if it is available without waiting, and any other value as it is.

        Raises:
            Exception: those of torch.
        """
        if getattr(value, "is_cuda", False) is True:
            self._deferred = self._deferred or DeferredValues()
            return self._deferred.exchange(slot, value)
        if getattr(value, "requires_grad", False) is True:
            return float(value.detach())  # or torch warns
        return value  # type: ignore[no-any-return]

    def _set(self, values: dict[str, object]) -> None:
        for name, value in values.items():
            try:
                if name in SETTINGS:
                    self._changes.set(name, value)
                else:
                    self._put_metric(name, value)
            except Exception:  # noqa: BLE001  as in _put
                pass

    def _put_metric(self, name: str, value: Any) -> None:  # noqa: ANN401  as in _put
        """Record a metric of the job's own.

        Raises:
            Exception: those of torch.
        """
        number = None if value is None or self._fd < 0 else self._names.metric(name, self._fd)
        if number is None:
            return
        if type(value) is not float:
            value = self._number(-1 - number, value)
        if value is not None:
            self._names.put(number, value)

    def _new_part(self, name: str) -> Part:
        try:
            part = self._names.part(name) if self._fd >= 0 else None
            if part is not None:
                self._parts[name] = part
                self._numbered.append(part)
                return part
        except Exception:  # noqa: BLE001  as in part
            pass
        return self._unknown_part

    def _drop(self, kind: str, what: object, why: str) -> None:
        try:
            self._names.dropped(f"{kind} {what!r:.60}", why)
        except Exception:  # noqa: BLE001  something that can't be printed
            pass


def _run_elsewhere() -> Run:
    run = Run(scratch_memory(), {})
    run.disabled = "belongs to another process"
    return run


def _make_part(step: Step, number: int, name: str) -> Part:
    if name == "wait":
        return WaitPart(step.slots, number, step)
    if name == "gc":
        return UntimedPart(step.slots, number)
    if name in ring.TAG_BITS:
        return TaggedPart(step.slots, number, step, ring.TAG_BITS[name])
    return Part(step.slots, number)
