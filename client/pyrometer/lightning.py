"""A callback for Lightning's Trainer (lightning 2, pytorch_lightning 2).

    from pyrometer.lightning import callback

    trainer = L.Trainer(..., callbacks=[callback(run="llama-8b", tokens_per_step=4_194_304, flops_per_token=51.47e9)])

It never raises into the trainer, and never imports lightning itself.
"""

from __future__ import annotations

import sys

from pyrometer._hooks import never_raises
from pyrometer._settings import float32_dtype
from pyrometer._shutdown import exit_of
from pyrometer._trainer_loop import TrainerHooks, TrainerLoop, callback_of, enters

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from typing_extensions import Unpack

    from pyrometer._settings import RunSettings


_DTYPES = {"bf16": "bf16", "16": "fp16", "64": "fp64", "transformer-engine": "fp8"}


def callback(**settings: Unpack[RunSettings]) -> Any:
    """Return a Callback that reports every step of the optimizer.

    Ranks, dtype (its precision), gradient accumulation and the number of the first step are taken from the trainer; the
    loss is that returned by ``training_step`` for the step's last batch. A loss on the GPU is not waited for: it is
    recorded with the next step.

    Args:
        settings: Those of :func:`pyrometer.start`; they override what the trainer knows.

    Returns:
        An instance of lightning's ``Callback`` if lightning is imported already, else an object with its methods.
    """
    loaded = sys.modules.get("lightning.pytorch") or sys.modules.get("pytorch_lightning")
    base = object if loaded is None else loaded.Callback
    return callback_of(_Hooks, base, callback, settings)


def _dtype_of(precision: str) -> str:
    """Return the dtype of matrix products under ``bf16-mixed``, ``16-true``, ``transformer-engine``, ...; or empty."""
    if precision.startswith("32"):
        return float32_dtype(sys.modules.get("torch"))
    return next((dtype for start, dtype in _DTYPES.items() if precision.startswith(start)), "")


class _Hooks(TrainerHooks):
    """The methods that the trainer calls. Part ``optimizer`` ends with the batch."""

    on_train_batch_start = TrainerHooks.begin_step
    on_before_backward = enters("backward")
    on_after_backward = TrainerHooks.leave_part
    on_before_optimizer_step = enters("optimizer")
    on_train_end = TrainerHooks.close_run
    _steps = 0

    @never_raises
    def on_train_start(self, trainer: Any, module: Any) -> None:
        """Start the run, perhaps from a checkpoint."""
        self._steps = trainer.global_step
        defaults = {
            "rank": trainer.global_rank,
            "local_rank": trainer.local_rank,
            "world_size": trainer.world_size,
            "first_step": self._steps,
            "model": type(module).__name__,
            "dtype": _dtype_of(str(getattr(trainer, "precision", ""))),
        }
        self.loop = TrainerLoop(self.settings, defaults)
        self.loop.begin("data")

    @never_raises
    def on_train_batch_end(self, trainer: Any, _module: Any, outputs: Any, *_: Any) -> None:
        """End the batch and, unless gradients are accumulated, the step."""
        loop = self.started_loop()
        loop.leave()
        if trainer.global_step == self._steps:
            loop.enter("data")
            return
        self._steps = trainer.global_step
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        if loss is not None:  # the trainer has divided it for the sum of gradients
            loop.run.record(loss=loss * trainer.accumulate_grad_batches)
        loop.end()
        loop.begin("data")

    @never_raises
    def on_validation_start(self, trainer: Any, _module: Any) -> None:
        """Enter part ``eval``, except for the sanity check before training."""
        if not trainer.sanity_checking:
            loop = self.started_loop()
            loop.discard()
            loop.enter("eval")

    @never_raises
    def on_validation_end(self, trainer: Any, _module: Any) -> None:
        """Leave part ``eval``, and begin the next step."""
        if not trainer.sanity_checking:
            self.started_loop().leave()
            self.started_loop().begin("data")

    @never_raises
    def on_save_checkpoint(self, *_: Any) -> None:
        """Tag the step that the checkpoint falls into; Lightning has no call for its end."""
        self.started_loop().run.tag("checkpoint")

    @never_raises
    def on_exception(self, _trainer: Any, _module: Any, exception: BaseException) -> None:
        """Leave the run as crashed, except after Ctrl-C: it is deliberate, and the trainer ends well after it."""
        if not isinstance(exception, KeyboardInterrupt):
            self.started_loop().run.crash(exit_of(type(exception), exception))
