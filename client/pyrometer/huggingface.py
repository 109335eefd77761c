"""A callback for Hugging Face's Trainer (transformers 4 and 5).

from pyrometer.huggingface import callback

trainer = Trainer(..., callbacks=[callback(run="llama-8b", sequence_length=4096)])

Nothing in it raises into the trainer; transformers itself is looked up, never imported.
"""

from __future__ import annotations

import os
import sys

from pyrometer._loop import Loop, harmless

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def callback(**settings: Any) -> Any:
    """A TrainerCallback that reports every optimizer step; ``settings`` as in :func:`pyrometer.start`.

    What isn't given is taken from the training arguments: the run's name, ranks, batch sizes, dtype, recomputation.
    Tokens per step need ``sequence_length`` (or ``tokens_per_step``), or ``include_num_input_tokens_seen`` in the
    training arguments. FLOPs per token are 6 x the parameters without embeddings (convention ``hf``) if not given.
    A loss is the one that the trainer logs, so with ``logging_steps=10`` every tenth step has one: their mean.
    """
    transformers = sys.modules.get("transformers")
    base = object if transformers is None else transformers.TrainerCallback
    return type("PyrometerCallback", (_Hooks, base), {})(settings)


class _Hooks:
    """The trainer's calls; a step's are step_begin, pre_optimizer_step, optimizer_step, step_end, log, evaluate, save.

    An evaluation and a checkpoint tell their ends only; that one follows, ``control`` says at the step's end.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        self._loop: Loop | None = None
        self._tokens = 0
        self._awaits_log = False

    @harmless
    def on_train_begin(self, args: Any, state: Any, _control: Any, model: Any = None, **_: Any) -> None:
        """The run begins, or goes on from a checkpoint."""
        found = _found(args, state, model)
        length = self._settings.get("sequence_length")
        if length:
            found["tokens_per_step"] = found["global_batch_size"] * int(length)
        self._tokens = state.num_input_tokens_seen
        self._loop = Loop(self._settings, found)
        self._loop.begin("data")

    @harmless
    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """The batch is there."""
        loop = self._open()
        loop.begin()
        loop.leave()

    @harmless
    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        """Gradients are there."""
        self._open().enter("optimizer")

    @harmless
    def on_optimizer_step(self, *_: Any, **__: Any) -> None:
        """Parameters are updated."""
        self._open().leave()

    @harmless
    def on_step_end(self, _args: Any, state: Any, control: Any, **_: Any) -> None:
        """The step is done, but for its log, in which the trainer waits for the loss."""
        if state.num_input_tokens_seen > self._tokens:
            self._open().run.record(tokens=state.num_input_tokens_seen - self._tokens)
            self._tokens = state.num_input_tokens_seen
        self._awaits_log = bool(control.should_log)
        if not self._awaits_log:
            self._finish(control)

    @harmless
    def on_log(self, _args: Any, _state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """The loss is known."""
        if self._awaits_log and logs:
            self._open().run.record(loss=logs.get("loss"), grad_norm=logs.get("grad_norm"))
            self._finish(control)

    @harmless
    def on_prediction_step(self, _args: Any, _state: Any, control: Any, **_: Any) -> None:
        """An evaluation is under way."""
        if self._awaits_log:
            self._finish(control)

    @harmless
    def on_evaluate(self, _args: Any, _state: Any, control: Any, *_: Any, **__: Any) -> None:
        """An evaluation is done; a checkpoint may follow."""
        self._go_on(control, evaluated=True)

    @harmless
    def on_save(self, _args: Any, _state: Any, control: Any, **_: Any) -> None:
        """A checkpoint is done."""
        loop = self._open()
        if loop.in_step:  # nothing had told of it: with save_strategy="best" the evaluation decides
            loop.run.tag("checkpoint")
        self._go_on(control, evaluated=True, saved=True)

    @harmless
    def on_epoch_end(self, _args: Any, _state: Any, control: Any, **_: Any) -> None:
        """The data has ended: what began as a step is none."""
        self._open().drop()
        self._go_on(control)

    @harmless
    def on_train_end(self, *_: Any, **__: Any) -> None:
        """The run has ended well."""
        self._open().drop()
        self._open().run.close()

    def _open(self) -> Loop:
        if self._loop is None:
            msg = "training has not begun"
            raise RuntimeError(msg)
        return self._loop

    def _finish(self, control: Any) -> None:
        self._awaits_log = False
        self._open().end()
        self._go_on(control)

    def _go_on(self, control: Any, *, evaluated: bool = False, saved: bool = False) -> None:
        """Into what comes now: an evaluation, a checkpoint, or the next step's data."""
        loop = self._open()
        if control.should_evaluate and not evaluated:
            loop.enter("eval")
        elif control.should_save and not saved:
            loop.enter("checkpoint")
        elif not control.should_training_stop:
            loop.begin("data")
        else:
            loop.leave()


def _found(args: Any, state: Any, model: Any) -> dict[str, Any]:
    """What the trainer knows of the run."""
    found: dict[str, Any] = {
        "run": getattr(args, "run_name", None) or os.path.basename(str(args.output_dir).rstrip("/")) or "unnamed",
        "rank": args.process_index,
        "local_rank": args.local_process_index,
        "world_size": args.world_size,
        "global_batch_size": args.train_batch_size * args.gradient_accumulation_steps * args.world_size,
        "micro_batch_size": args.per_device_train_batch_size,
        "dtype": "bf16" if args.bf16 else "fp16" if args.fp16 else "",
        "recompute": "full" if args.gradient_checkpointing else "none",
        "first_step": state.global_step,
        "model": str(getattr(getattr(model, "config", None), "name_or_path", "") or type(model).__name__),
    }
    count = getattr(model, "num_parameters", None)
    if count is not None:
        found["flops_per_token"] = 6.0 * count(exclude_embeddings=True)
        found["convention"] = "hf"
    return found
