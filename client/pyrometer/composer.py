"""A callback for MosaicML's Composer, and for llm-foundry.

    from pyrometer.composer import callback

    trainer = composer.Trainer(..., callbacks=[callback(run="llama-8b", flops_per_token=51.47e9)])

It never raises into the trainer, and never imports Composer itself.
"""

from __future__ import annotations

import sys

from pyrometer._hooks import never_raises, subscribers_of, when_imported, wrap_save
from pyrometer._trainer_loop import TrainerHooks, TrainerLoop, callback_of, enters

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from typing_extensions import Unpack

    from pyrometer._settings import RunSettings
    from pyrometer._step import Part

_SAVER = "composer.callbacks.checkpoint_saver"
_LOSS = "loss/train/total"
_DTYPES = {"amp_bf16": "bf16", "amp_fp16": "fp16", "amp_fp8": "fp8"}


def callback(**settings: Unpack[RunSettings]) -> Any:
    """Return a Callback that reports every batch of Composer's trainer, which is a step of the optimizer.

    The run's name, dtype, loss and number of the first step are the trainer's, and so are the tokens of a step where
    the data's specification counts them.

    Args:
        settings: Those of :func:`pyrometer.start`; they override what the trainer knows.

    Returns:
        An instance of Composer's ``Callback`` if composer is imported already, else an object with its methods.
    """
    base = getattr(sys.modules.get("composer"), "Callback", object)
    return callback_of(_Hooks, base, callback, settings)


class _Hooks(TrainerHooks):
    """The methods that the trainer calls; forward and backward once for each micro-batch.

    Those that every callback needs are here as well: one made before Composer was imported has no other base.
    """

    after_dataloader = TrainerHooks.begin_step
    before_forward = enters("forward")
    before_backward = enters("backward")
    after_forward = after_backward = TrainerHooks.leave_part
    fit_end = TrainerHooks.close_run
    _tokens = 0

    @never_raises
    def run_event(self, event: Any, state: Any, logger: Any) -> None:
        """Call the method of an event, where there is one."""
        hook = getattr(self, event.value, None)
        if hook is not None:
            hook(state, logger)

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint saves of it: nothing."""
        return {}

    def load_state_dict(self, _state: Any) -> None:
        """Load nothing."""

    def close(self, *_: Any) -> None:
        """Do nothing: the trainer's end says neither that training ended well nor that it crashed."""

    def post_close(self) -> None:
        """Do nothing."""

    @never_raises
    def fit_start(self, state: Any, _logger: Any) -> None:
        """Start the run, perhaps from a checkpoint."""
        defaults = {
            "run": state.run_name,
            "dtype": _DTYPES.get(str(getattr(state.precision, "value", state.precision)), ""),
            "first_step": state.timestamp.batch.value,
            "model": type(state.model).__name__,
        }
        self._tokens = state.timestamp.token.value
        self.loop = TrainerLoop(self.settings, defaults, tells_end=True)
        self.loop.begin("data")
        when_imported(_SAVER, self._watch_saves)

    @never_raises
    def batch_end(self, state: Any, _logger: Any) -> None:
        """End the step; the trainer has waited for its loss, of which it has none where the loss scale overflowed."""
        loop = self.started_loop()
        loop.leave()
        loop.run.record(loss=(state.total_loss_dict or {}).get(_LOSS))
        tokens = state.timestamp.token.value
        if tokens > self._tokens:
            loop.run.record(tokens=tokens - self._tokens)
            self._tokens = tokens
        loop.end()
        loop.begin("data")

    @never_raises
    def eval_before_all(self, *_: Any) -> None:
        """Enter part ``eval``."""
        loop = self.started_loop()
        loop.discard()
        loop.enter("eval")

    @never_raises
    def eval_after_all(self, *_: Any) -> None:
        """Leave part ``eval``, and begin the next step."""
        self.started_loop().leave()
        self.started_loop().begin("data")

    @never_raises
    def _watch_saves(self, module: Any) -> None:
        subscribers_of(module.CheckpointSaver, "_save_checkpoint", wrap_save).add(self)

    def checkpoint_part(self) -> Part | None:
        """Return the part ``checkpoint``, to be entered; None if no run is open."""
        return None if self.loop is None else self.loop.run.part("checkpoint")
