"""Reporting without a change to the training loop: a hook on PyTorch's optimizers, or a wrapper around any function."""

from __future__ import annotations

import weakref

from pyrometer._hooks import never_raises, when_imported
from pyrometer._start import forgive_arguments, start

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from typing_extensions import Unpack

    from pyrometer._run import Run
    from pyrometer._settings import StartSettings

_OPTIMIZERS = "torch.optim.optimizer"
# After as many steps of other optimizers in a row, the one that was counted is no longer in use.
_MAX_OTHER_STEPS = 50
# Counted by DeepSpeed's engine, after an overflow of the loss scale.
_SKIPPED_STEPS = "skipped_steps"


@forgive_arguments
def auto(run: str | None = None, **settings: Unpack[StartSettings]) -> Run:
    """Report every step of PyTorch's optimizer, with no change to the loop. Never raises.

    A step lasts from one ``optimizer.step()`` to the next, so accumulated gradients count as one; of several optimizers
    the first counts. May be called before torch is imported, which this never does. Evaluations and checkpoints between
    two steps are detected (:class:`pyrometer._pause_detection.PauseDetector`).

    It can't see that a skipped step of fp16's loss scaler makes the next look twice as long, nor that training is done
    while the job goes on: call ``close`` then. DeepSpeed's ZeRO calls its inner optimizers at will: see :func:`watch`.

    Args:
        run: Name of the run.
        settings: Those of :func:`pyrometer.start`; an unknown one is reported and ignored.

    Returns:
        The run, which needs no further call.
    """
    started = start(run, **settings)
    hook = _OptimizerHook(started)

    def register(module: Any) -> None:
        module.register_optimizer_step_post_hook(hook)

    never_raises(when_imported)(_OPTIMIZERS, never_raises(register))
    return started


@forgive_arguments
def watch(
    target: Any,
    name: str,
    run: str | None = None,
    *,
    counter: str = "",
    loss: Callable[[Any], Any] | None = None,
    **settings: Unpack[StartSettings],
) -> Run:
    """Report every call of ``target.name`` as a step, by replacing it with a function that counts. Never raises.

    Args:
        target: The module or object from which the training loop takes the function.
        name: The function: ``train_step`` of ``megatron.training.training``, ``train_batch`` of a DeepSpeed engine.
        run: Name of the run.
        counter: An attribute of ``target`` that counts steps, where not every call is one: a step then lasts from one
            change of it to the next. ``global_steps`` for ``step`` of a DeepSpeed engine.
        loss: Returns the loss, given what the function returned.
        settings: Those of :func:`pyrometer.start`; an unknown one is reported and ignored.

    Returns:
        The run, which needs no further call.
    """
    started = start(run, **settings)
    never_raises(_wrap)(target, name, started, counter, loss)
    return started


class _OptimizerHook:
    """Ticks after each step of the optimizer that counts; PyTorch calls it after each step of any."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.optimizer: Callable[[], object] = lambda: None
        self.other_steps = 0

    def __call__(self, optimizer: object, _arguments: object, _named: object) -> None:
        counted = self.optimizer()
        if optimizer is not counted:
            self.other_steps += 1
            if counted is not None and self.other_steps < _MAX_OTHER_STEPS:
                return
            self.optimizer = weakref.ref(optimizer)
        self.other_steps = 0
        self.run.tick()


def _wrap(target: Any, name: str, run: Run, counter: str, loss: Callable[[Any], Any] | None) -> None:
    import functools  # noqa: PLC0415  would add to what `import pyrometer` costs

    function = getattr(target, name)

    def recorded(arguments: Any, named: Any) -> Any:
        skipped = getattr(target, _SKIPPED_STEPS, None)
        result = function(*arguments, **named)
        _record_loss(run, loss, result)
        run.record(skipped=getattr(target, _SKIPPED_STEPS, None) != skipped)
        return result

    @functools.wraps(function)
    def step_block(*arguments: Any, **named: Any) -> Any:
        with run.step():
            return recorded(arguments, named)

    @functools.wraps(function)
    def tick_on_change(*arguments: Any, **named: Any) -> Any:
        before = getattr(target, counter, None)
        result = recorded(arguments, named)
        if getattr(target, counter, None) != before:
            run.tick()
        return result

    setattr(target, name, tick_on_change if counter else step_block)


def _record_loss(run: Run, loss: Callable[[Any], Any] | None, result: Any) -> None:
    try:
        if loss is not None:
            run.record(loss=loss(result))
    except Exception:  # noqa: BLE001  the user's function on a result that it didn't expect
        pass
