"""A callback for Hugging Face's Trainer (transformers 4 and 5).

    from pyrometer.huggingface import callback

    trainer = Trainer(..., callbacks=[callback(run="llama-8b", sequence_length=4096)])

It never raises into the trainer, and never imports transformers itself.
"""

from __future__ import annotations

import os
import sys

from pyrometer._hooks import never_raises
from pyrometer._model_flops import flops_per_token, is_sharded
from pyrometer._settings import float32_dtype
from pyrometer._trainer_loop import TrainerHooks, TrainerLoop, callback_of, enters

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from typing_extensions import Unpack

    from pyrometer._settings import RunSettings


def callback(**settings: Unpack[RunSettings]) -> Any:
    """Return a TrainerCallback that reports every step of the optimizer.

    The run's name, ranks, batch sizes, dtype and recomputation default to the training arguments. Tokens per step need
    ``sequence_length`` (or ``tokens_per_step``), or ``include_num_input_tokens_seen`` in the training arguments. FLOPs
    per token default to 6 x the parameters without embeddings (convention ``hf``), of experts those that a token uses,
    and 4 x those that are frozen under an adapter; with ``convention="megatron"`` or another and ``sequence_length``
    they are counted from the model's config, sliding windows included. The loss is the one that the trainer
    logs: with ``logging_steps=10`` every tenth step has one, the mean of the ten.

    Args:
        settings: Those of :func:`pyrometer.start`; they override what the trainer knows.

    Returns:
        An instance of transformers' ``TrainerCallback`` if transformers is imported already, else an object with its
        methods.
    """
    transformers = sys.modules.get("transformers")
    base = object if transformers is None else transformers.TrainerCallback
    return callback_of(_Hooks, base, callback, settings)


class _Hooks(TrainerHooks):
    """The methods that the trainer calls.

    Those of a step come in this order: step_begin, pre_optimizer_step, optimizer_step, step_end, log, evaluate, save.
    There is no call for the beginning of an evaluation or a checkpoint; at the step's end, ``control`` announces both.
    """

    on_step_begin = TrainerHooks.begin_step
    on_pre_optimizer_step = enters("optimizer")
    on_optimizer_step = TrainerHooks.leave_part
    on_train_end = TrainerHooks.close_run
    _tokens = 0
    _awaits_log = False

    def __init__(self, settings: RunSettings) -> None:
        super().__init__(settings)
        self._counted: dict[str, Any] = {}

    @never_raises
    def on_init_end(self, _args: Any, _state: Any, _control: Any, model: Any = None, **_: Any) -> None:
        """Count the FLOPs before FSDP has cut the model into shards, after which its own size is unknown."""
        self._counted = _flops_settings(model, self.settings)

    @never_raises
    def on_train_begin(self, args: Any, state: Any, _control: Any, model: Any = None, **_: Any) -> None:
        """Start the run, perhaps from a checkpoint."""
        defaults = _trainer_settings(args, state, model)
        defaults |= self._counted if is_sharded(model) else _flops_settings(model, self.settings)
        length = self.settings.get("sequence_length")
        if length:
            defaults["tokens_per_step"] = defaults["global_batch_size"] * int(length)
        self._tokens = state.num_input_tokens_seen
        self.loop = TrainerLoop(self.settings, defaults, tells_end=True)
        self.loop.begin("data")

    @never_raises
    def on_step_end(self, _args: Any, state: Any, control: Any, **_: Any) -> None:
        """End the step, unless it will be logged: then the trainer still waits for the loss."""
        if state.num_input_tokens_seen > self._tokens:
            self.started_loop().run.record(tokens=state.num_input_tokens_seen - self._tokens)
            self._tokens = state.num_input_tokens_seen
        self._awaits_log = bool(control.should_log)
        if not self._awaits_log:
            self._end_step(control)

    @never_raises
    def on_log(self, _args: Any, _state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Record the loss, and end the step that waited for it."""
        if self._awaits_log and logs:
            self.started_loop().run.record(loss=logs.get("loss"), grad_norm=logs.get("grad_norm"))
            self._end_step(control)

    @never_raises
    def on_prediction_step(self, _args: Any, _state: Any, control: Any, **_: Any) -> None:
        """End a step that waited for its log: an evaluation is running."""
        if self._awaits_log:
            self._end_step(control)

    @never_raises
    def on_evaluate(self, _args: Any, _state: Any, control: Any, *_: Any, **__: Any) -> None:
        """End an evaluation; a checkpoint may follow."""
        self._enter_next(control, evaluated=True)

    @never_raises
    def on_save(self, _args: Any, _state: Any, control: Any, **_: Any) -> None:
        """End a checkpoint."""
        loop = self.started_loop()
        if loop.in_step:  # it was not announced: with save_strategy="best" the evaluation decides
            loop.run.tag("checkpoint")
        self._enter_next(control, evaluated=True, saved=True)

    @never_raises
    def on_epoch_end(self, _args: Any, _state: Any, control: Any, **_: Any) -> None:
        """Drop the step that has begun: the epoch's data has ended."""
        self.started_loop().discard()
        self._enter_next(control)

    def _end_step(self, control: Any) -> None:
        self._awaits_log = False
        self.started_loop().end()
        self._enter_next(control)

    def _enter_next(self, control: Any, *, evaluated: bool = False, saved: bool = False) -> None:
        """Enter what comes now: an evaluation, a checkpoint, or the next step's data."""
        loop = self.started_loop()
        if control.should_evaluate and not evaluated:
            loop.enter("eval")
        elif control.should_save and not saved:
            loop.enter("checkpoint")
        elif not control.should_training_stop:
            loop.begin("data")
        else:
            loop.leave()


def _trainer_settings(args: Any, state: Any, model: Any) -> dict[str, Any]:
    """Return the settings of the run that the trainer knows."""
    gpus = args.world_size * _gpus_of_process(args, model)
    settings: dict[str, Any] = {
        "run": getattr(args, "run_name", None) or os.path.basename(str(args.output_dir).rstrip("/")) or None,
        "rank": args.process_index,
        "local_rank": args.local_process_index,
        "world_size": gpus,
        "global_batch_size": args.train_batch_size
        * args.gradient_accumulation_steps
        * (args.world_size // _ranks_of_batch(args, model)),
        "micro_batch_size": args.per_device_train_batch_size,
        "dtype": "bf16" if args.bf16 else "fp16" if args.fp16 else _dtype_of(model),
        "recompute": "full" if args.gradient_checkpointing else "none",
        "first_step": state.global_step,
        "model": str(getattr(getattr(model, "config", None), "name_or_path", "") or type(model).__name__),
    }
    return settings


def _dtype_of(model: Any) -> str:
    """Return the dtype of a model's matrix products where no autocast sets it; empty where weights are quantized."""
    name = str(getattr(model, "dtype", "")).removeprefix("torch.")
    if getattr(model, "is_quantized", False) or name not in {"bfloat16", "float16", "float32"}:
        return ""
    return float32_dtype(sys.modules.get("torch")) if name == "float32" else name


def _gpus_of_process(args: Any, model: Any) -> int:
    """Return how many GPUs a process drives: all that it sees under DataParallel, or those of a device map."""
    mapped = {str(device) for device in (getattr(model, "hf_device_map", None) or {}).values()}
    return max(1, int(getattr(args, "n_gpu", 1)), len(mapped - {"cpu", "disk", "meta"}))


def _ranks_of_batch(args: Any, model: Any) -> int:
    """Return how many ranks share one batch, as the trainer's ``get_total_train_batch_size`` counts them."""
    parallel = getattr(args, "parallelism_config", None)
    tensor = getattr(model, "_tp_size", None) or getattr(model, "tp_size", None)
    if tensor is None and getattr(args, "hf_deepspeed_config", None) is not None:
        tensor = args.hf_deepspeed_config.config.get("tensor_parallel", {}).get("autotp_size")
    of_context = getattr(parallel, "cp_size", 1) * getattr(parallel, "sp_size", 1)
    shards = getattr(parallel, "tp_size", 1) if tensor is None else tensor
    return max(1, int(shards) * int(of_context))


def _flops_settings(model: Any, settings: RunSettings) -> dict[str, Any]:
    """Return the FLOPs per token and their convention; nothing where they can't be counted."""
    if model is None or settings.get("flops_per_token") is not None:
        return {}
    try:
        counted = flops_per_token(model, settings.get("sequence_length"), settings.get("convention", ""))
    except Exception:  # noqa: BLE001  a model of another kind, a shape that isn't known: no MFU, and it says why
        return {}
    return {} if counted is None else dict(zip(("flops_per_token", "convention"), counted, strict=True))
