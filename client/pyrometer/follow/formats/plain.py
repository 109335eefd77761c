"""Formats that need no code, a row each under its line; one that is wrapped here is one line in the log.

To add one, add a row: the name and the convention of its FLOPs, words that all lines of its steps have, the pattern of
these lines, and what their fields mean (:mod:`pyrometer.follow.line_format`).
"""

from __future__ import annotations

from pyrometer.follow.line_format import WORDS, BlockParser, Row
from pyrometer.follow.log_line import NUMBER

_NANOGPT_PREFIX = r"^(?:\d[-\d]* [\d:.,]+ )?"

FORMATS = (
    # Composer and llm-foundry, a block every `console_log_interval`: `[batch=12/20]:` and below it, one value a line,
    # `         Train throughput/device/tokens_per_sec: 7785.3322`. The throughputs are means over 100 batches, which
    # hide a slow one, so steps are timed by `time/train` (hours, without evaluation).
    Row(
        "composer", "llm_foundry", ("[batch=", "Train ", "time/train"),
        (r"^(?:\[epoch=\d+\])?\[batch=<step>(?:/\d+)?\]:",),
        field=r"^\s*Train ([\w/.\-]+): (\S+)$",
        fields={
            "elapsed_hours": "time/train",
            "gpu_tokens_per_second": "throughput/device/tokens_per_sec",
            "samples_per_second": "throughput/samples_per_sec",
            "flops": "throughput/device/flops_per_sec",
            "mfu": "throughput/device/mfu",
            "loss": "loss/train/total",
            "grad_norm": "l2_norm/grad/global",
        },
        evaluation=r"^\s*Eval [\w/.\-]+: \S+$",
        parser=BlockParser,
    ),
    # DeepSpeed, rank 0, every `steps_per_print` steps. Its timer, or `0/20, RunningAvgSamplesPerSec=...` before 2023:
    # `[2023-11-07 01:55:23,714] [INFO] [timer.py:260:stop] epoch=0/micro_step=40/global_step=10,
    # RunningAvgSamplesPerSec=25.025771473496132, CurrSamplesPerSec=25.704280480541442, MemAllocated=4.32GB`; the
    # running average hides every slow step. The pipeline engine: `steps: 200 loss: 5.5508 iter time (s): 0.936
    # samples/sec: 136.706`. The engine, timed by its own clock: `[2023-12-29 13:02:49,647] [INFO]
    # [logging.py:96:log_dist] [Rank 0] step=10, skipped=0, lr=[0.00033], mom=[(0.9, 0.999)]`. Trainers on DeepSpeed
    # (GPT-NeoX, Hugging Face) print lines of their own beside these, which say more: a second line has to follow.
    Row(
        "deepspeed", "", ("[Rank 0] step=", "skipped=", "SamplesPerSec="),
        (
            (
                r"(?:epoch=\d+/micro_step=\d+/global_step=|\b\d+/)<step>, RunningAvgSamplesPerSec=\S+, "
                r"CurrSamplesPerSec=<samples_per_second>"
            ),
            # Bounded, as the next: a line of beginnings alone would be tried from each of them to its end.
            r"\bsteps: <step> loss: <loss>\b.{0,200}?\biter time \(s\): <seconds> samples/sec: <samples_per_second>",
            r"^\W{0,9}(?:<date>\])?.*\[Rank \d+\] step=<step>, skipped=\d+, lr=",
        ),
        checkpoint=r"\bSaving model checkpoint:|\bCheckpoint \S+ is about to be saved!",
        lines=2,
    ),
    # llm.c, `train_gpt2.cu` of karpathy/llm.c: `step   61/74 | loss 3.208939 (+nanz)| norm 1.4800 (+nanz)| lr 3.00e-04
    # | 44.57 ms | -100.0% bf16 MFU | 91886 tok/s`; its `train_gpt2.py`: `step    1/10 | train loss 5.2 | norm 30.2 | lr
    # 1.0e-04 | (133.24 ms | 30742 tok/s)`; `train_gpt2_fp32.cu`: `step    1/37: train loss 4.36 (133.24 ms, 30742
    # tok/s)`. The rate is smoothed, so the tokens of a step are those that the log prints at its start. The MFU is
    # negative on a GPU that it doesn't know.
    Row(
        "llm.c", "palm", ("step ", "loss ", " ms", "tok/s"),
        (
            (
                r"^step +<step>/\d+(?: \||:) (?:train )?loss <loss>\b(?:.{0,40}?\| norm <grad_norm> )?.{0,60}?"
                r"[(|] ?<milliseconds> ms\b(?: \| <percent>% \w+ MFU)?"
            ),
        ),
        constants=r"(?:\btotal_batch_size=|^total desired batch size: )<tokens>$",
        checkpoint=r"^Writing (?:model|state) to ",
        evaluation=r"^val loss \S+$",
    ),
    # MaxText, `metric_logger.py` of AI-Hypercomputer/maxtext, of the last step that the device has finished:
    # `completed step: 3, seconds: 11.715, TFLOP/s/device: 193.354, Tokens/s/device: 4195.595, total_weights: 1572864,
    # loss: 9.774`; at e591f30 it ends in `lm_loss: 9.774, perplexity: 17570.7`, and in 2023 it had `TFLOP/s: 36.722`
    # alone. The first steps are timed without the device: `seconds: 0.002` beside `12.444`.
    Row(
        "maxtext", "megatron", ("completed step:", "seconds:", "TFLOP/s/device:", "Tokens/s/device:"),
        (r"\bcompleted step: <step>, <fields>",),
        field=r"(?:^|, )([^:,]+): ([\d.,eE+-]*\d)(?=, |\s*$)",
        fields={
            "seconds": "seconds",
            "gpu_tokens_per_second": "Tokens/s/device",
            "teraflops": ("TFLOP/s/device", "TFLOP/s"),
            "loss": "loss",
        },
        checkpoint=r"(?i)\b(?:saved a checkpoint at step|Started an asynchronous checkpoint save)\b",
        evaluation=r"(?i)\beval metrics after step:|\bCompleted eval step\b",
    ),
    # modded-nanogpt, `train_gpt.py` of KellerJordan/modded-nanogpt since 2025: `step:2/1480 train_time:86ms
    # step_avg:43.11ms`; before: `step:2/1530 train_loss:10.0645 train_time:31881ms step_avg:nanms`. `step_avg` is the
    # mean since the start, `train_time` the time since then without evaluations. Before October 2024 it has no times.
    Row(
        "modded-nanogpt", "", ("step:", "train_time:", "step_avg:"),
        (
            r"^step:<step>/\d+ (?:train_loss:<loss> )?train_time:(?:<elapsed_milliseconds>ms|<elapsed>s) step_avg:",
        ),
        evaluation=r"^step:\d+/\d+ val_loss:",
    ),
    # nanoGPT, every `log_interval` steps: `iter 100: loss 3.1234, time 135.12ms, mfu 37.14%`. The time is that of this
    # one step; the MFU is smoothed, relative to an A100's peak on every GPU, and -100.00% until it is known.
    Row(
        "nanogpt", "palm", ("iter ", "loss ", "time ", "ms"),
        (rf"{_NANOGPT_PREFIX}iter <step>: loss <loss>, time <milliseconds>ms(?:, mfu <percent>%)?",),
        checkpoint="^saving checkpoint to ",
        evaluation=rf"{_NANOGPT_PREFIX}step \d+: train loss \S+, val loss ",
    ),
    # OLMo-core, `console_logger.py` of allenai/OLMo-core at fa6c501, a block every `metrics_log_interval`:
    # `[step=10/715255,epoch=1,eta=9d 4h]` and below it, one value a line, `    throughput/device/TPS=12,345`; OLMo 1,
    # `train.py` of allenai/OLMo: `[step=10/715255]` and `    throughput/device/tokens_per_second=12,345`. Values are of
    # the last step; `(actual avg)` are means since the start.
    Row(
        "olmo-core", "", ("[step=", ",epoch=", "throughput/device/", "train/CE loss"),
        (r"\[step=<step>/[^,\]]*(?:,[^\]]*)?\]\s*$",),
        field=r"^\s+([\w/ .()%-]+)=(\S+)$",
        fields={
            "steps_per_second": ("throughput/device/BPS", "throughput/device/batches_per_second"),
            "gpu_tokens_per_second": ("throughput/device/TPS", "throughput/device/tokens_per_second"),
            "percent": "throughput/device/MFU",
            "loss": ("train/CE loss", "train/CrossEntropyLoss"),
            "grad_norm": ("optim/total grad norm", "optim/total_grad_norm"),
        },
        checkpoint=r"\bSaving (?:\w+ )?checkpoint\b",
        evaluation=r"\[eval=|\beval_step=",
        parser=BlockParser,
    ),
    # torchtitan, every `metrics.log_freq` steps, in colour, from every rank in LOG_RANK: `[rank0]:[titan] 2026-02-24
    # 19:46:17,508 - root - INFO - step:  4  loss:  7.62585  grad_norm: 26.6250  memory: 66GiB  tps: 10,050  tflops:
    # 314.69  mfu: 13.99%`. `tps` is tokens per second of one GPU; `mfu` is N/A under float8, and relative to an A100's
    # peak on a GPU that torchtitan doesn't know.
    Row(
        "torchtitan", "palm", ("step:", "loss:", "tps:", "mfu:"),
        (r"(?:^|(?<!validate)\s)step:\s*<step>\s+(?P<fields>loss:.*)",),
        field=WORDS,
        fields={
            "loss": "loss",
            "grad_norm": "grad_norm",
            "gpu_tokens_per_second": "tps",
            "teraflops": "tflops",
            "mfu": "mfu",
        },
        required=("tps",),
        checkpoint=r"\bSaving the checkpoint\b",
        evaluation=r"\bvalidate step:",
    ),
    # torchtune, `metric_logging.py`, every `log_every_n_steps`: `Step 52 | loss:2.36 lr:2e-05
    # tokens_per_second_per_gpu:1234.5 grad_norm:1.2`; its recipes from 0.1 to bd2a0fc, without these lines a bar of
    # epoch and step, timed by whole seconds: `1|52|Loss: 2.3697006702423096:   0%|▏  | 52/25880 [00:24<3:55:01]`.
    Row(
        "torchtune", "", ("|Loss: ", "|", "it/s]"),
        (r"^Step <step> \| (?P<fields>.*\bloss:.*)", r"\b\d+\|<step>\|Loss: <loss>:.*?\[<clock><",),
        field=WORDS,
        fields={
            "loss": "loss",
            "gpu_tokens_per_second": "tokens_per_second_per_gpu",
            "grad_norm": "grad_norm",
        },
        checkpoint=r"\bSaving checkpoint\b|\bModel checkpoint of size\b",
        ranked=True,
    ),
    # verl, `LocalLogger` of volcengine/verl from 0.1 (`timing/gen:21.470`, no total) to b178a3c: `step:1 -
    # actor/pg_loss:0.000 - actor/grad_norm:2.060 - timing_s/step:48.7025266494602 - perf/total_num_tokens:159906 -
    # perf/throughput:3283.320414789452 - actor/entropy:np.float64(0.44)`; its `sft_trainer`: `step:7 - train/loss:1.25
    # - train/time(s):2.5`. Ray puts `(TaskRunner pid=4711)` in front. A step includes its rollouts.
    Row(
        "verl", "", ("step:", " - ", "actor/", "timing"),
        (r"(?:^|\s)step:<step> - <fields>",),
        field=rf"(?:^| - )(\S+):(?:np\.\w+\()?({NUMBER})\)?(?= - |\s*$)",
        fields={
            "seconds": ("perf/time_per_step", "timing_s/step", "timing/step", "train/time(s)"),
            "tokens": ("perf/total_num_tokens", "train/global_tokens"),
            "gpu_tokens_per_second": "perf/throughput",
            "mfu": ("train/mfu", "perf/mfu/actor"),
            "loss": ("train/loss", "actor/pg_loss", "critic/vf_loss"),
            "grad_norm": ("train/grad_norm", "actor/grad_norm"),
        },
        required=("train/", "actor/", "critic/", "perf/", "timing"),
        evaluation=r"(?:^|\s)step:\d+ - val",
    ),
)  # fmt: skip
