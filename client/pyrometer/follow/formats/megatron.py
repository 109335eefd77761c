"""Megatron-LM, its forks, and NeMo: a line for a step, with its fields between bars."""

from __future__ import annotations

from collections.abc import Mapping

from pyrometer.follow.line_format import LineParser, Row
from pyrometer.follow.log_line import LoggedStep, parse_step

# NeMo's line begins alike, but has no time of an iteration.
_STEP = r"\biteration[ =:]+<step>/\s*\d+\s*\|(?=.{0,300}\belapsed time per iteration \()<fields>"
_CHECKPOINT = r"\b(?:saving|successfully saved) checkpoint (?:at|from) iteration\b"
_EVALUATION = r"\bvalidation loss at iteration\b"
# Newer lines have milliseconds, older ones and BLOOM's seconds.
_FIELDS = {
    "milliseconds": "elapsed time per iteration (ms)",
    "seconds": "elapsed time per iteration (s)",
    "samples": "global batch size",
    "loss": "lm loss",
    "grad_norm": "grad norm",
}


class GptNeoxParser(LineParser):
    """Computes the batch of a step from rate and time."""

    def finish(self, step: LoggedStep, texts: Mapping[str, str]) -> LoggedStep:  # noqa: ARG002  as its base has it
        """See :class:`~pyrometer.follow.line_format.LineParser`."""
        samples = (step.samples_per_second or 0.0) * (step.seconds or 0.0)
        return step._replace(samples=float(round(samples)) or None, samples_per_second=None)


class NemoParser(LineParser):
    """Takes the number of a step from its field: the other one counts from the beginning of the epoch."""

    def finish(self, step: LoggedStep, texts: Mapping[str, str]) -> LoggedStep | None:
        """See :class:`~pyrometer.follow.line_format.LineParser`."""
        digits = texts.get("global_step", "").strip()
        number = parse_step(digits) if digits.isdecimal() else step.step
        return None if number is None else step._replace(step=number)


FORMATS = (
    # Megatron-LM, `training_log`, every `--log-interval` steps, with the means of the interval: ` [2026-04-28
    # 14:23:45.123456] iteration       42/    500 | consumed samples:        10752 | elapsed time per iteration (ms):
    # 892.1 | throughput per GPU (TFLOP/s/GPU): 245.3 | global batch size:   256 | lm loss: 3.214500E+00 | grad norm:
    # 0.543 |`. Its forks add fields; Primus prints pairs of the last and the mean, `(ms): 892.1/880.4`. The throughput
    # is printed with `--log-throughput` only.
    Row(
        "megatron", "megatron", ("iteration", "elapsed time per iteration", "global batch size", "lm loss"),
        (_STEP,),
        fields={
            **_FIELDS,
            "gpu_tokens_per_second": "tokens/sec/GPU",
            "teraflops": "throughput per GPU (TFLOP/s/GPU)",
        },
        foreign=("TFLOPs", "samples per second", "approx flops per GPU"),
        checkpoint=_CHECKPOINT,
        evaluation=_EVALUATION,
    ),
    # Megatron-DeepSpeed, with which BLOOM was trained, with TFLOPs that include the recompute: `[default7]: iteration
    # 85376/  115311 | consumed samples:    158692272 | elapsed time per iteration (s): 104.70 | global batch size:
    # 2048 | lm loss: 1.979558E+00 | grad norm: 0.132 | samples per second: 19.561 | TFLOPs: 149.77 |`. A newer fork has
    # milliseconds, `actual seqlen` and tokens per GPU and second. `samples per second` is ignored: in some logs it is
    # wrong by a factor of 1,000.
    Row(
        "megatron-deepspeed", "bloom_hw", ("iteration", "elapsed time per iteration", "samples per second", "TFLOPs"),
        (_STEP,),
        fields={
            **_FIELDS,
            "sequence": ("actual seqlen", "seqlen"),
            "gpu_tokens_per_second": "tokens per gpu per second (tgs)",
            "teraflops": "TFLOPs",
        },
        required=("TFLOPs", "samples per second"),
        checkpoint=_CHECKPOINT,
        evaluation=_EVALUATION,
    ),
    # GPT-NeoX, `megatron/logging.py` of EleutherAI/gpt-neox at ea7aefd (1.0 had it in `megatron/training.py`):
    # ` samples/sec: 51.234 | iteration       10/      50 | elapsed time per iteration (ms): 9876.5 | learning rate:
    # 1.234E-04 | approx flops per GPU: 150.3TFLOPS | lm_loss: 7.123456E+00 | loss scale: 1.0 |`.
    Row(
        "gpt-neox", "", ("samples/sec:", "iteration", "elapsed time per iteration", "approx flops per GPU", "lm_loss"),
        (rf"(?:\bsamples/sec: <samples_per_second> \|.{{0,60}}?)?{_STEP}",),
        fields={
            **_FIELDS,
            "flops": "approx flops per GPU",
            "loss": ("lm_loss", "lm loss"),
            "grad_norm": ("grad norm", "grad_norm"),
        },
        required=("approx flops per GPU",),
        checkpoint=_CHECKPOINT,
        evaluation=r"\bvalidation (?:loss|results) at iteration\b",
        parser=GptNeoxParser,
    ),
    # NeMo and Megatron-Bridge: `Training epoch 0, iteration 45/99 | lr: 6.897e-06 | global_batch_size: 128 |
    # global_step: 45 | reduced_train_loss: 11.96 | train_step_timing in s: 6.08 | TFLOPS_per_GPU: 1.249e+03 |`. NeMo 1
    # has a bar, `Epoch 0:   1%|  | 795/77225 [9:07:58<878:01:48, 41.36s/it, reduced_train_loss=3.090,
    # global_step=794.0]`, timed by its whole seconds. It counts from 0 again with the next epoch, which isn't read.
    Row(
        "nemo", "megatron", ("Training epoch", "iteration ", "train_step_timing in s", "reduced_train_loss"),
        (
            r"\bTraining epoch \d+, iteration <step>/\d+ \|<fields>",
            r"^Epoch 0: .*\| <step>/\d+ \[<clock><.*\breduced_train_loss=<loss>\b",
        ),
        fields={
            "seconds": "train_step_timing in s",
            "samples": "global_batch_size",
            "gpu_tokens_per_second": "tokens_per_sec_per_gpu",
            "teraflops": "TFLOPS_per_GPU",
            "loss": "reduced_train_loss",
            "grad_norm": "grad_norm",
        },
        checkpoint=r"\bScheduled async checkpoint save\b|\bGlobal Checkpoint Save\b",
        evaluation=r"\bValidation(?: DataLoader \d+)?:",
        parser=NemoParser,
    ),
)  # fmt: skip
