"""Ways in without touching the training loop: a hook on PyTorch's optimizers, and one on any function."""

from __future__ import annotations

import weakref

from pyrometer._imported import when_imported
from pyrometer._loop import harmless
from pyrometer._run import Run, start

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_OPTIMIZERS = "torch.optim.optimizer"
# As many steps of other optimizers in a row, and the one we listened to is not in use any more.
_PATIENCE = 50


def auto(run: str = "unnamed", **settings: Any) -> Run:
    """Report every step of PyTorch's optimizer, with no change to the loop. Arguments as in :func:`pyrometer.start`.

    A step is from one ``optimizer.step()`` to the next, so gradient accumulation counts as one; of several optimizers
    the first counts. May be called before torch is imported; it is never imported here. Evaluations and checkpoints
    between two steps are noticed (:class:`pyrometer._notices.Notices`). What can't be seen: that a skipped step of
    fp16's loss scaler makes the next seem twice as long, and that training is done while the job goes on: ``close``
    then. DeepSpeed's ZeRO calls inner optimizers as it likes: see :func:`watch`.
    """
    made = start(run, **settings)
    ticks = _Ticks(made)

    def listen(module: Any) -> None:
        module.register_optimizer_step_post_hook(ticks)

    harmless(when_imported)(_OPTIMIZERS, harmless(listen))
    return made


def watch(
    target: Any,
    name: str,
    run: str = "unnamed",
    *,
    counter: str = "",
    loss: Callable[[Any], Any] | None = None,
    **settings: Any,
) -> Run:
    """Report every call of ``target.name`` as a step, by putting a function that counts in its place.

    Args:
        target: the module or object that the training loop takes the function from.
        name: the function: ``train_step`` of ``megatron.training.training``, ``train_batch`` of a DeepSpeed engine.
        run: the run's name.
        counter: an attribute of ``target`` that counts steps, where not every call is one: a step is then from one
            change of it to the next. ``global_steps`` for ``step`` of a DeepSpeed engine.
        loss: the loss, from what the function returned.
        settings: as in :func:`pyrometer.start`.
    """
    made = start(run, **settings)
    harmless(_replace)(target, name, made, counter, loss)
    return made


class _Ticks:
    """Called after each step of any optimizer."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.optimizer: Callable[[], object] = lambda: None
        self.others = 0

    def __call__(self, optimizer: object, _arguments: object, _named: object) -> None:
        known = self.optimizer()
        if optimizer is not known:
            self.others += 1
            if known is not None and self.others < _PATIENCE:
                return
            self.optimizer = weakref.ref(optimizer)
        self.others = 0
        self.run.tick()


def _replace(target: Any, name: str, run: Run, counter: str, loss: Any) -> None:
    import functools  # noqa: PLC0415  several ms that `import pyrometer` need not cost

    function = getattr(target, name)

    @functools.wraps(function)
    def step_block(*arguments: Any, **named: Any) -> Any:
        with run.step():
            found = function(*arguments, **named)
            _record_loss(run, loss, found)
        return found

    @functools.wraps(function)
    def tick_on_change(*arguments: Any, **named: Any) -> Any:
        before = getattr(target, counter, None)
        found = function(*arguments, **named)
        _record_loss(run, loss, found)
        if getattr(target, counter, None) != before:
            run.tick()
        return found

    setattr(target, name, tick_on_change if counter else step_block)


def _record_loss(run: Run, loss: Callable[[Any], Any] | None, found: Any) -> None:
    try:
        if loss is not None:
            run.record(loss=loss(found))
    except Exception:  # noqa: BLE001  the user's function on an answer that it didn't expect
        pass
