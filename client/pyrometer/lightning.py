"""A callback for Lightning's Trainer (lightning 2, pytorch_lightning 2).

from pyrometer.lightning import callback

trainer = L.Trainer(..., callbacks=[callback(run="llama-8b", tokens_per_step=4_194_304, flops_per_token=51.47e9)])

Nothing in it raises into the trainer; lightning itself is looked up, never imported.
"""

from __future__ import annotations

import sys

from pyrometer._loop import Loop, harmless

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def callback(**settings: Any) -> Any:
    """A Callback that reports every step of the optimizer; ``settings`` as in :func:`pyrometer.start`.

    Ranks, gradient accumulation and the number of the first step are the trainer's; the loss is what ``training_step``
    returned for the step's last batch. A loss on the GPU is not waited for: it stands at the next step.
    """
    loaded = sys.modules.get("lightning.pytorch") or sys.modules.get("pytorch_lightning")
    base = object if loaded is None else loaded.Callback
    return type("PyrometerCallback", (_Hooks, base), {})(settings)


class _Hooks:
    """The trainer's calls."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        self._loop: Loop | None = None
        self._steps = 0

    @harmless
    def on_train_start(self, trainer: Any, module: Any) -> None:
        """The run begins, or goes on from a checkpoint."""
        self._steps = trainer.global_step
        found = {
            "rank": trainer.global_rank,
            "local_rank": trainer.local_rank,
            "world_size": trainer.world_size,
            "first_step": self._steps,
            "model": type(module).__name__,
        }
        self._loop = Loop(self._settings, found)
        self._loop.begin("data")

    @harmless
    def on_train_batch_start(self, *_: Any) -> None:
        """The batch is there."""
        loop = self._open()
        loop.begin()
        loop.leave()

    @harmless
    def on_before_backward(self, *_: Any) -> None:
        """The loss is there."""
        self._open().enter("backward")

    @harmless
    def on_after_backward(self, *_: Any) -> None:
        """The gradients are there."""
        self._open().leave()

    @harmless
    def on_before_optimizer_step(self, *_: Any) -> None:
        """The optimizer begins; its end is the batch's."""
        self._open().enter("optimizer")

    @harmless
    def on_train_batch_end(self, trainer: Any, _module: Any, outputs: Any, *_: Any) -> None:
        """A batch is done, and with it a step, unless gradients are accumulated."""
        loop = self._open()
        loop.leave()
        if trainer.global_step == self._steps:
            loop.enter("data")
            return
        self._steps = trainer.global_step
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        if loss is not None:  # what the trainer has divided for the sum of gradients
            loop.run.record(loss=loss * trainer.accumulate_grad_batches)
        loop.end()
        loop.begin("data")

    @harmless
    def on_validation_start(self, trainer: Any, _module: Any) -> None:
        """Not the one that checks before training whether validation works."""
        if not trainer.sanity_checking:
            loop = self._open()
            loop.drop()
            loop.enter("eval")

    @harmless
    def on_validation_end(self, trainer: Any, _module: Any) -> None:
        """Training goes on."""
        if not trainer.sanity_checking:
            self._open().leave()
            self._open().begin("data")

    @harmless
    def on_save_checkpoint(self, *_: Any) -> None:
        """A checkpoint begins, of which the end isn't told: the step that has it in it is marked."""
        self._open().run.tag("checkpoint")

    @harmless
    def on_train_end(self, *_: Any) -> None:
        """The run has ended well."""
        self._open().drop()
        self._open().run.close()

    @harmless
    def on_exception(self, _trainer: Any, _module: Any, exception: BaseException) -> None:
        """The run has not; Ctrl-C is deliberate, and the trainer ends well after it."""
        if not isinstance(exception, KeyboardInterrupt):
            self._open().run.abandon("crashed")

    def _open(self) -> Loop:
        if self._loop is None:
            msg = "training has not begun"
            raise RuntimeError(msg)
        return self._loop
