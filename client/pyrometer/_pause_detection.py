"""Pauses of a loop that only ticks: detect evaluations and checkpoints by the calls that PyTorch makes for them.

A loop with ``with run.step():`` marks what belongs to a step. Between two ticks anything may happen, and an evaluation
of ten minutes looks like a hang of ten minutes. So the calls that begin one are wrapped: ``Module.eval`` of a module
that is being trained, up to its ``train`` or the next step; and the functions that write checkpoints.
"""

from __future__ import annotations

import sys
import weakref
from _thread import get_ident

from pyrometer import ring
from pyrometer._hooks import SUBSCRIBERS, never_raises, subscribers_of, when_imported, wrap_save

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pyrometer._step import Part, Step

_MODULE = "torch.nn.modules.module"
# The modules from which a job takes the functions that write a checkpoint; torch's own go by two names.
_SAVE_FUNCTIONS = (
    ("torch", "save"), ("torch.serialization", "save"), ("torch.distributed.checkpoint", "save"),
    ("safetensors.torch", "save_file"), ("safetensors.torch", "save_model"),
)  # fmt: skip
# Sets the module it wraps to evaluation without calling its ``eval``.
_DEEPSPEED, _ENGINE = "deepspeed.runtime.engine", "DeepSpeedEngine"
_NEVER = -2


class PauseDetector:
    """Enters the parts ``eval`` and ``checkpoint`` of one run, in the thread that ticks.

    A pause in two steps running is none but belongs to the training, as where a frozen part of the model is set to
    ``eval`` for each step: from then on it is ignored, and the run's pauses count as unnamed.
    """

    __slots__ = (
        "__weakref__", "_checkpoint", "_eval", "_in_eval", "_last_pause_steps", "_named", "_step", "_thread",
    )  # fmt: skip

    def __init__(self, step: Step, checkpoint: Part, evaluation: Part) -> None:
        self._step = step
        self._checkpoint = checkpoint
        self._eval = evaluation
        self._in_eval = False
        self._last_pause_steps = {checkpoint.number: _NEVER, evaluation.number: _NEVER}
        self._thread = get_ident()
        self._named = _subscribe(self)

    def tick(self) -> None:
        """Prepare for a tick: a step is about to end, or ticking begins."""
        self._thread = get_ident()
        self.end_eval()
        self._step.slots[ring.TICKING_SLOT] = ring.NAMED if self._named else ring.UNNAMED

    def begin_eval(self, module: Any) -> None:
        """Enter part ``eval`` as ``module`` is set to evaluation, unless it is frozen: such modules always are."""
        trained = module.training and any(parameter.requires_grad for parameter in module.parameters())
        if trained and self._is_pause(self._eval):
            self._in_eval = True
            self._step.tick_ready = False
            subscribers_of(sys.modules[_MODULE].Module, "train", _wrap_train).add(self)
            self._eval.__enter__()

    def end_eval(self) -> None:
        """Leave part ``eval``: a module is set to training again, or a step shows that it was."""
        if self._in_eval:
            self._in_eval = False
            self._eval.__exit__(None, None, None)
            _unsubscribe(sys.modules[_MODULE].Module, "train", self)

    def checkpoint_part(self) -> Part | None:
        """Return the part ``checkpoint``, to be entered; None if the call is no pause of this run."""
        if get_ident() == self._thread:
            self.end_eval()
        if not self._is_pause(self._checkpoint):
            return None
        return self._checkpoint

    def _is_pause(self, part: Part) -> bool:
        """Return False for what runs beside the training, lies in a part that the job names, or is in every step."""
        step, last = self._step, self._last_pause_steps.get(part.number)
        if last is None or not step.ticking or get_ident() != self._thread or step.slots[ring.PART_SLOT]:
            return False
        self._last_pause_steps[part.number] = step.count
        if last < step.count - 1 or last == step.count:
            return True
        del self._last_pause_steps[part.number]
        self._named = False
        step.slots[ring.TICKING_SLOT] = ring.UNNAMED
        return False


def _subscribe(detector: PauseDetector) -> bool:
    """Call ``detector`` at evaluations and checkpoints as long as it lives. Return whether torch is loaded.

    Raises:
        AttributeError: this torch lacks a function that is to be wrapped; pauses have no names then.
    """
    if _MODULE not in sys.modules:
        return False
    subscribers_of(sys.modules[_MODULE].Module, "eval", _wrap_eval).add(detector)
    when_imported(_DEEPSPEED, _subscription(detector, "eval", _wrap_eval, _ENGINE))
    for module, name in _SAVE_FUNCTIONS:
        when_imported(module, _subscription(detector, name, wrap_save))
    return True


def _subscription(
    detector: PauseDetector, name: str, wrap: Callable[..., Any], owner: str = ""
) -> Callable[[Any], None]:
    @never_raises
    def subscribe(module: Any) -> None:
        subscribers_of(getattr(module, owner) if owner else module, name, wrap).add(detector)

    return subscribe


def _unsubscribe(owner: Any, name: str, detector: PauseDetector) -> None:
    """Remove the detector, and with the last one the wrapper: ``train`` is called for every submodule."""
    function = getattr(owner, name)
    detectors = getattr(function, SUBSCRIBERS, None)
    if detectors is not None:
        detectors.discard(detector)
        if not detectors:
            setattr(owner, name, function.__wrapped__)


def _wrap_eval(function: Callable[..., Any], detectors: weakref.WeakSet[PauseDetector]) -> Callable[..., Any]:
    def evaluate(module: Any, *arguments: Any, **named: Any) -> Any:
        for detector in list(detectors):
            never_raises(detector.begin_eval)(module)
        return function(module, *arguments, **named)

    return evaluate


def _wrap_train(function: Callable[..., Any], detectors: weakref.WeakSet[PauseDetector]) -> Callable[..., Any]:
    def train(module: Any, mode: bool = True, *arguments: Any, **named: Any) -> Any:
        if mode:
            for detector in list(detectors):
                never_raises(detector.end_eval)()
        return function(module, mode, *arguments, **named)

    return train
