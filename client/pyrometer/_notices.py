"""Pauses of a loop that only ticks: the evaluations and checkpoints that PyTorch itself tells.

A loop with ``with run.step():`` says by the block what belongs to a step. Between two ticks anything may be, and an
evaluation of ten minutes looks like a hang of ten minutes. So the calls that begin one are noticed: ``Module.eval`` of
a module that is being trained, up to its ``train`` or the next step; and the functions that write checkpoints.
"""

from __future__ import annotations

import sys
import weakref
from _thread import get_ident

from pyrometer import ring
from pyrometer._imported import when_imported
from pyrometer._loop import harmless

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pyrometer._step import Part, Step

_MODULE = "torch.nn.modules.module"
# Where a job takes the functions from that write a checkpoint; torch's own may be there under two names.
_SAVES = (
    ("torch", "save"), ("torch.serialization", "save"), ("torch.distributed.checkpoint", "save"),
    ("safetensors.torch", "save_file"), ("safetensors.torch", "save_model"),
)  # fmt: skip
# Sets what it wraps to evaluation without calling its ``eval``.
_DEEPSPEED, _ENGINE = "deepspeed.runtime.engine", "DeepSpeedEngine"
_LISTENERS = "__pyrometer_notices__"
_NEVER = -2


class Notices:
    """Enters the parts ``eval`` and ``checkpoint`` of one run, in the thread that ticks.

    What comes in two steps running is no pause of the training but belongs to it, as where a frozen part of the model
    is set to ``eval`` for each step: from then on it is left alone, and the run's pauses count as unnamed.
    """

    __slots__ = ("__weakref__", "_checkpoint", "_eval", "_in_eval", "_named", "_seen", "_step", "_thread")

    def __init__(self, step: Step, checkpoint: Part, evaluation: Part) -> None:
        self._step = step
        self._checkpoint = checkpoint
        self._eval = evaluation
        self._in_eval = False
        self._seen = {checkpoint.number: _NEVER, evaluation.number: _NEVER}
        self._thread = get_ident()
        self._named = _listen(self)

    def tick(self) -> None:
        """A step is about to end, or ticking begins."""
        self._thread = get_ident()
        self.end_eval()
        self._step.slots[ring.TICKING_SLOT] = ring.NAMED if self._named else ring.UNNAMED

    def begin_eval(self, module: Any) -> None:
        """A module is set to evaluation; frozen ones always are."""
        trained = module.training and any(parameter.requires_grad for parameter in module.parameters())
        if trained and self._is_pause(self._eval):
            self._in_eval = True
            self._step.plain = False
            _replaced(sys.modules[_MODULE].Module, "train", _training).add(self)
            self._eval.__enter__()

    def end_eval(self) -> None:
        """A module is set to training again, or a step tells that it was."""
        if self._in_eval:
            self._in_eval = False
            self._eval.__exit__(None, None, None)
            _leave(sys.modules[_MODULE].Module, "train", self)

    def begin_checkpoint(self) -> bool:
        """A checkpoint is about to be written: whether :meth:`end_checkpoint` is to follow."""
        if get_ident() == self._thread:
            self.end_eval()
        if not self._is_pause(self._checkpoint):
            return False
        self._checkpoint.__enter__()
        return True

    def end_checkpoint(self) -> None:
        """It is written."""
        self._checkpoint.__exit__(None, None, None)

    def _is_pause(self, part: Part) -> bool:
        """Not what goes on beside the training, lies in a part that the job names, or belongs to every step."""
        step, seen = self._step, self._seen.get(part.number)
        if seen is None or not step.ticking or get_ident() != self._thread or step.slots[ring.PART_SLOT]:
            return False
        self._seen[part.number] = step.count
        if seen < step.count - 1 or seen == step.count:
            return True
        del self._seen[part.number]
        self._named = False
        step.slots[ring.TICKING_SLOT] = ring.UNNAMED
        return False


def _listen(notices: Notices) -> bool:
    """Have it told of evaluations and checkpoints, as long as it lives; whether there is a torch to tell.

    Raises AttributeError where that torch isn't as it was: pauses have no names then.
    """
    if _MODULE not in sys.modules:
        return False
    _replaced(sys.modules[_MODULE].Module, "eval", _evaluating).add(notices)
    when_imported(_DEEPSPEED, _listener(notices, "eval", _evaluating, _ENGINE))
    for module, name in _SAVES:
        when_imported(module, _listener(notices, name, _saving))
    return True


def _listener(notices: Notices, name: str, make: Callable[..., Any], owner: str = "") -> Callable[[Any], None]:
    @harmless
    def listen(module: Any) -> None:
        _replaced(getattr(module, owner) if owner else module, name, make).add(notices)

    return listen


def _replaced(owner: Any, name: str, make: Callable[..., Any]) -> weakref.WeakSet[Notices]:
    """Who listens to a function, in whose place there is one that tells them from the first listener on."""
    import functools  # noqa: PLC0415  torch has it

    function = getattr(owner, name)
    listeners: weakref.WeakSet[Notices] | None = getattr(function, _LISTENERS, None)
    if listeners is None:
        listeners = weakref.WeakSet()
        telling = functools.wraps(function)(make(function, listeners))
        setattr(telling, _LISTENERS, listeners)
        setattr(owner, name, telling)
    return listeners


def _leave(owner: Any, name: str, notices: Notices) -> None:
    """Listen no more; with the last listener the function is what it was: ``train`` is called for every submodule."""
    function = getattr(owner, name)
    listeners = getattr(function, _LISTENERS, None)
    if listeners is not None:
        listeners.discard(notices)
        if not listeners:
            setattr(owner, name, function.__wrapped__)


def _evaluating(function: Callable[..., Any], listeners: weakref.WeakSet[Notices]) -> Callable[..., Any]:
    def evaluate(module: Any, *arguments: Any, **named: Any) -> Any:
        for notices in list(listeners):
            harmless(notices.begin_eval)(module)
        return function(module, *arguments, **named)

    return evaluate


def _training(function: Callable[..., Any], listeners: weakref.WeakSet[Notices]) -> Callable[..., Any]:
    def train(module: Any, mode: bool = True, *arguments: Any, **named: Any) -> Any:
        if mode:
            for notices in list(listeners):
                harmless(notices.end_eval)()
        return function(module, mode, *arguments, **named)

    return train


def _saving(function: Callable[..., Any], listeners: weakref.WeakSet[Notices]) -> Callable[..., Any]:
    def save(*arguments: Any, **named: Any) -> Any:
        begun = [notices for notices in list(listeners) if notices.begin_checkpoint()]
        try:
            return function(*arguments, **named)
        finally:
            for notices in begun:
                notices.end_checkpoint()

    return save
