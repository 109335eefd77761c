"""Waits that no line of the job names: detect them by the calls that PyTorch makes, without a synchronisation.

Whoever waits least is the rank that all others wait for. Where a rank waits for others:

- at the end of ``backward``, where DDP, FSDP and what is built on them wait for the last gradients: PyTorch calls its
  final callbacks once all gradients are computed, and one of ours is the first of them;
- in ``Work.wait``, which every blocking call of ``torch.distributed`` ends with, and in its functional collectives;
- where DDP copies buffers before a forward pass, and where FSDP 2 waits for parameters.

All of it is part ``wait``: on a GPU timed by events on the stream that computes (:class:`pyrometer._cuda.WaitPart`), on
the CPU by the clock. Along with it come parts ``backward`` and ``data``, so that a hang shows where a rank is.
``PYROMETER_WAITS=0`` leaves PyTorch as it is.
"""

from __future__ import annotations

import sys
import weakref
from _thread import get_ident

from pyrometer import ring
from pyrometer._cuda import initialized_torch
from pyrometer._hooks import never_raises, subscribers_of, when_imported
from pyrometer._step import note_failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pyrometer._step import Part, Step

    Detectors = weakref.WeakSet["WaitDetector"]

_DATA, _BACKWARD, _WAIT = (1 + ring.PARTS.index(part) for part in ("data", "backward", "wait"))
# Within these a collective belongs to the part.
_WHOLE_PARTS = tuple(1 + ring.PARTS.index(part) for part in ("wait", "checkpoint", "eval", "gc"))
_NOT_BEGUN = -1

# A wait that is less of the first steps is none: 50 us is what it takes to notice one on a busy CPU.
_FIRST_STEPS, _LEAST_SHARE = 50, 0.003

# A GPU's collectives are kernels: without ``async_op`` they run on the stream that computes, which waits in them.
_LAUNCHES = (
    "_allgather_base", "_reduce_scatter_base", "allgather", "allgather_coalesced", "allgather_into_tensor_coalesced",
    "allreduce", "allreduce_coalesced", "alltoall", "alltoall_base", "barrier", "broadcast", "gather", "recv",
    "recv_anysource", "reduce", "reduce_scatter", "reduce_scatter_tensor_coalesced", "scatter", "send",
)  # fmt: skip


class WaitDetector:
    """Enters parts ``wait``, ``backward`` and ``data`` of one run, in the thread that trains."""

    __slots__ = ("__weakref__", "_in_backward", "_parts", "_step", "_tail", "_thread")

    def __init__(self, step: Step, parts: list[Part | None]) -> None:
        """Enter ``parts``, by their number in the ring's header; more may be appended."""
        self._step = step
        self._parts = parts
        self._thread = get_ident()
        self._in_backward = False
        self._tail = _NOT_BEGUN
        _subscribe(self)

    def begin_wait(self) -> int:
        """Enter part ``wait``. Return what :meth:`end` needs, or a negative number if there is nothing to end."""
        outer = self._step.slots[ring.PART_SLOT]
        if outer in _WHOLE_PARTS or not self._step.started:
            return _NOT_BEGUN
        # On a GPU, gradients are computed in threads of PyTorch's own while this one waits in ``backward``.
        if get_ident() != self._thread and not self._in_backward:
            return _NOT_BEGUN
        self._enter(_WAIT)
        return outer

    def begin_launch(self) -> int:
        """Do as :meth:`begin_wait` for a collective that a GPU runs on the stream that computes."""
        torch = initialized_torch()
        if torch is None or torch.cuda.current_stream() != torch.cuda.default_stream():
            return _NOT_BEGUN
        return self.begin_wait()

    def begin_data(self) -> int:
        """Do as :meth:`begin_wait` for part ``data``, unless the job is in a part already."""
        slots = self._step.slots
        if slots[ring.PART_SLOT] or not self._step.started or get_ident() != self._thread:
            return _NOT_BEGUN
        self._enter(_DATA)
        return 0

    def begin_backward(self) -> int:
        """Do as :meth:`begin_wait` for part ``backward``; recomputation calls ``backward`` within ``backward``."""
        if self._in_backward or not self._step.started:
            return _NOT_BEGUN
        self._in_backward = True
        self._thread = get_ident()
        self._tail = _NOT_BEGUN
        outer = self._step.slots[ring.PART_SLOT]
        if not outer:
            self._enter(_BACKWARD)
        return outer

    def begin_tail(self) -> None:
        """Enter part ``wait``: all gradients of this rank are computed."""
        self._tail = self.begin_wait()

    def end_backward(self, outer: int) -> None:
        """Leave what :meth:`begin_backward` and :meth:`begin_tail` have entered."""
        if self._tail >= 0:
            self.end(_WAIT, self._tail)
        self._in_backward = False
        if not outer:
            self.end(_BACKWARD, outer)

    def end(self, number: int, outer: int) -> None:
        """Leave a part, and go on with the one around it, which does not include it."""
        part, around, slots = self._parts[number], self._parts[outer], self._step.slots
        if part is None:
            return
        part.__exit__(None, None, None)
        if around is not None:
            around.started += slots[ring.PART_STARTED_SLOT] - part.started
            slots[ring.PART_SLOT] = outer

    def fail(self, number: int) -> None:
        """Note that an exception leaves a part."""
        note_failure(self._step.slots, number - 1)

    def fail_backward(self) -> None:
        """Note that an exception leaves ``backward``, or the wait at its end."""
        self.fail(_WAIT if self._tail >= 0 else _BACKWARD)

    def observer(self, unknown: Callable[[], None]) -> Callable[[], bool]:
        """Return what is to be called after each of the first steps; it calls ``unknown`` if none showed a wait."""

        def observe() -> bool:
            step = self._step
            if step.count < _FIRST_STEPS:
                return True
            if step.slots[ring.PART_TOTALS_SLOT + _WAIT - 1] < _LEAST_SHARE * step.total:
                unknown()
            return False

        return observe

    def _enter(self, number: int) -> None:
        part = self._parts[number]
        if part is not None:
            part.__enter__()


def _subscribe(detector: WaitDetector) -> None:
    """Call ``detector`` at waits as long as it lives. A PyTorch that lacks one of these functions has the others."""
    wait, launch = _wrapper("begin_wait", _WAIT), _wrapper("begin_launch", _WAIT)
    _wrap(detector, "torch.autograd", "", "backward", _wrap_backward)
    _wrap(detector, "torch.utils.data.dataloader", "_BaseDataLoaderIter", "__next__", _wrapper("begin_data", _DATA))
    c10d = "torch.distributed.distributed_c10d"
    _wrap(detector, c10d, "Work", "wait", wait)
    for name in _LAUNCHES:
        _wrap(detector, c10d, "ProcessGroup", name, launch)
    _wrap(detector, "torch.distributed", "", "_broadcast_coalesced", wait)
    _wrap(detector, "torch.distributed._functional_collectives", "", "wait_tensor", wait)
    for module in ("_fully_shard._fsdp_param_group", "_fsdp_param_group"):  # of PyTorch 2.6, and before
        _wrap(detector, f"torch.distributed.fsdp.{module}", "FSDPParamGroup", "wait_for_unshard", wait)


def _wrap(detector: WaitDetector, module: str, owner: str, name: str, wrap: Callable[..., Any]) -> None:
    @never_raises
    def subscribe(loaded: Any) -> None:
        subscribers_of(getattr(loaded, owner) if owner else loaded, name, wrap).add(detector)

    when_imported(module, subscribe)


def _wrapper(begin: str, number: int) -> Callable[..., Any]:
    """Return what wraps a function in a part that ``begin`` enters."""

    def wrap(function: Callable[..., Any], detectors: Detectors) -> Callable[..., Any]:
        def in_part(*arguments: Any, **named: Any) -> Any:
            entered = _begin(detectors, begin)
            try:
                return function(*arguments, **named)
            except Exception as error:
                if not isinstance(error, StopIteration):  # a data loader's end
                    for detector, _ in entered:
                        detector.fail(number)
                raise
            finally:
                for detector, outer in entered:
                    detector.end(number, outer)

        return in_part

    return wrap


def _wrap_backward(function: Callable[..., Any], detectors: Detectors) -> Callable[..., Any]:
    def backward(*arguments: Any, **named: Any) -> Any:
        entered = _begin(detectors, "begin_backward")
        hook = _hook_on_end(arguments[0] if arguments else named.get("tensors"), entered) if entered else None
        try:
            return function(*arguments, **named)
        except Exception:
            for detector, _ in entered:
                detector.fail_backward()
            raise
        finally:
            for detector, outer in entered:
                detector.end_backward(outer)
            if hook is not None:
                hook.remove()

    return backward


def _begin(detectors: Detectors, begin: str) -> list[tuple[WaitDetector, int]]:
    """Return the detectors that have entered a part, each with what it needs to leave it."""
    entered = []
    for detector in list(detectors):
        try:
            outer = getattr(detector, begin)()
        except Exception:  # noqa: BLE001  a stubbed or half-imported torch, a stream that is gone
            outer = _NOT_BEGUN
        if outer >= 0:
            entered.append((detector, outer))
    return entered


def _hook_on_end(root: Any, entered: list[tuple[WaitDetector, int]]) -> Any:
    """Have PyTorch call the detectors when all gradients of ``root`` are computed. Return the hook, None without one.

    The gradient of ``root`` itself is the first: only within a backward pass can a callback for its end be queued, and
    those of DDP and FSDP, which wait for gradients, are queued later and called later.
    """
    try:
        tensor = root if hasattr(root, "register_hook") else root[0]
        # PyTorch's compiler of backward passes would compile again for each hook.
        if tensor.grad_fn is None or _compiles_backward():
            return None
        queue = sys.modules["torch.autograd"].Variable._execution_engine.queue_callback  # noqa: SLF001  no other way

        @never_raises
        def call() -> None:
            for detector, _ in entered:
                detector.begin_tail()

        @never_raises
        def queue_call(_gradient: Any) -> None:
            queue(call)

        return tensor.register_hook(queue_call)
    except Exception:  # noqa: BLE001  roots that are no tensors, a later version of PyTorch
        return None


def _compiles_backward() -> bool:
    module = sys.modules.get("torch._dynamo.compiled_autograd")
    return bool(getattr(module, "compiled_autograd_enabled", False))
