# ruff: noqa: E501  lines of logs, as they are printed
"""One real-looking line per format and variant; the shapes are those of the trainers' own print statements."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrometer.follow.formats import all_formats
from pyrometer.follow.log_line import LoggedPause, LoggedStep, clean

FORMATS = all_formats()

TUNE_OLD = "  1|52|Loss: 2.3697006702423096:   0%|▏                     | 52/25880 [00:24<3:55:01,  1.83it/s]"
TUNE_LINE = "Step 52 | loss:2.3697 lr:2e-05 tokens_per_second_per_gpu:1234.5 grad_norm:1.25 "
LINES = [
    ("megatron", " [2026-04-28 14:23:45.123456] iteration       42/    500 | consumed samples:        10752 | elapsed time per iteration (ms): 892.1 | throughput per GPU (TFLOP/s/GPU): 245.3 | learning rate: 3.000000E-04 | global batch size:   256 | lm loss: 3.214500E+00 | loss scale: 1.0 | grad norm: 0.543 | number of skipped iterations:   0 |",
     LoggedStep(42, seconds=0.8921, samples=256, teraflops=245.3, loss=3.2145, grad_norm=0.543)),
    ("megatron", " iteration      100/  500 | consumed samples:  25600 | elapsed time per iteration (ms): 1000.0 | lm loss: nan |",
     LoggedStep(100, seconds=1.0)),
    # Primus on AMD's GPUs, as its trainer prints: the last and the mean of each.
    ("megatron", " iteration       10/      50 | consumed samples:          160 | elapsed time per iteration (ms): 892.1/880.4 | throughput per GPU (TFLOP/s/GPU): 545.2/550.1 | tokens per GPU (tokens/s/GPU): 11234.5/11300.0 | learning rate: 1.000000E-05 | global batch size:    16 | lm loss: 1.185E+01 | loss scale: 1.0 | grad norm: 4.250 |",
     LoggedStep(10, seconds=0.8921, samples=16, teraflops=545.2, loss=11.85, grad_norm=4.25)),
    ("megatron-deepspeed", "[default7]: iteration    85376/  115311 | consumed samples:    158692272 | consumed tokens: 325001773056 | elapsed time per iteration (s): 104.70 | learning rate: 1.150E-05 | global batch size:  2048 | lm loss: 1.979558E+00 | grad norm: 0.132 | num zeros: 0.0 | number of skipped iterations:   0 | number of nan iterations:   0 | samples per second: 19.561 | TFLOPs: 149.77 |",
     LoggedStep(85376, seconds=104.7, samples=2048, teraflops=149.77, loss=1.979558, grad_norm=0.132)),
    ("megatron-deepspeed", " iteration       10/  115311 | elapsed time per iteration (ms): 14287.5 | global batch size:   768 | lm loss: 2.5E+00 | actual seqlen:  4096 | samples per second: 53.753 | tokens per gpu per second (tgs): 1146.733 | TFLOPs: 69.85 |",
     LoggedStep(10, seconds=14.2875, samples=768, sequence=4096, gpu_tokens_per_second=1146.733, teraflops=69.85, loss=2.5)),
    ("deepspeed", "[2023-11-07 01:55:23,714] [INFO] [timer.py:260:stop] epoch=0/micro_step=40/global_step=10, RunningAvgSamplesPerSec=25.02, CurrSamplesPerSec=25.704280480541442, MemAllocated=4.32GB, MaxMemAllocated=38.49GB",
     LoggedStep(10, samples_per_second=25.704280480541442)),
    ("deepspeed", "[INFO] [timer.py:198:stop] 0/20, RunningAvgSamplesPerSec=9.8, CurrSamplesPerSec=10.25, MemAllocated=1GB",
     LoggedStep(20, samples_per_second=10.25)),
    ("deepspeed", "steps: 200 loss: 5.5508 lm loss: 5.5103 iter time (s): 0.936 samples/sec: 136.706",
     LoggedStep(200, seconds=0.936, samples_per_second=136.706, loss=5.5508)),
    ("torchtitan", "[rank0]:[titan] 2026-02-24 19:46:17,508 - root - INFO - \x1b[31mstep:  4  \x1b[32mloss:  7.62585  \x1b[38;2;180;60;0mgrad_norm: 26.6250  \x1b[38;2;54;234;195mmemory: 66.91GiB(37.51%)  \x1b[34mtps: 10,050  \x1b[36mtflops: 314.69  \x1b[35mmfu: 13.99%\x1b[39m",
     LoggedStep(4, gpu_tokens_per_second=10050, teraflops=314.69, mfu=0.1399, loss=7.62585, grad_norm=26.625)),
    ("torchtitan", "[titan] 2026-02-24 19:46:17,508 - root - INFO - step: 20  loss: 5.1  grad_norm: 1.2  memory: 60.1GiB(37.5%)  tps: 4,376  tflops: 253.41  mfu: N/A",
     LoggedStep(20, gpu_tokens_per_second=4376, teraflops=253.41, loss=5.1, grad_norm=1.2)),
    ("nanotron", "12/21 01:39:51 [INFO|DP=0|TP=0|lrdn0007]: iteration: 211364 / 1500000 | consumed_tokens: 480B | time_per_iteration_ms: 8.79K | tokens_per_sec: 182K | tokens_per_sec_per_gpu: 699 | global_batch_size: 1.6M | grad_norm: 0.112 | lm_loss: 2.04 | lr: 0.0001 | model_tflops_per_gpu: 15.4 | eta: 131 days, 1:45:39",
     LoggedStep(211364, seconds=8.79, tokens=1.6e6, gpu_tokens_per_second=699, teraflops=15.4, loss=2.04, grad_norm=0.112)),
    ("nanotron", "[INFO|DP=0|PP=0|TP=0]: iteration: 3 / 10 | elapsed_time_per_iteration_ms: 900 | lm_loss: 9.1 | hardware_tflops_per_gpu: 20",
     LoggedStep(3, seconds=0.9, loss=9.1)),
    ("nemo", "Training epoch 0, iteration 45/99 | lr: 6.897e-06 | global_batch_size: 128 | global_step: 45 | max_memory_reserved: 127785762816 | reduced_train_loss: 11.96 | train_step_timing in s: 6.08 | TFLOPS_per_GPU: 1.249e+03 | consumed_samples: 5888",
     LoggedStep(45, seconds=6.08, samples=128, teraflops=1249, loss=11.96)),
    ("nanogpt", "iter 100: loss 3.1234, time 135.12ms, mfu 37.14%",
     LoggedStep(100, seconds=0.13512, mfu=0.3714, loss=3.1234)),
    ("nanogpt", "iter 0: loss 10.9888, time 30000.00ms, mfu -100.00%",
     LoggedStep(0, seconds=30.0, loss=10.9888)),
    # EleutherAI/gpt-neox megatron/logging.py at ea7aefd; at 1.0 megatron/training.py, whose loss was named as Megatron's.
    ("gpt-neox", " samples/sec: 51.234 | iteration       10/      50 | elapsed time per iteration (ms): 9876.5 | learning rate: 1.234E-04 | approx flops per GPU: 150.3TFLOPS | lm_loss: 7.123456E+00 | loss scale: 1.0 | number of skipped iterations:   0 |",
     LoggedStep(10, seconds=9.8765, samples=506, teraflops=150.3, loss=7.123456)),
    ("gpt-neox", "samples/sec: 4.000 | iteration       20/  320000 | elapsed time per iteration (ms): 2000.0 | learning rate: 1.2E-04 | approx flops per GPU: 950.0GFLOPS | lm loss: 6.5E+00 | number of nan iterations:   0 |",
     LoggedStep(20, seconds=2.0, samples=8, teraflops=0.95, loss=6.5)),
    # AI-Hypercomputer/maxtext: a log in its documentation, and metric_logger.py at e591f30.
    ("maxtext", "completed step: 3, seconds: 11.715, TFLOP/s/device: 193.354, Tokens/s/device: 4195.595, total_weights: 1572864, loss: 9.774",
     LoggedStep(3, seconds=11.715, gpu_tokens_per_second=4195.595, teraflops=193.354, loss=9.774)),
    ("maxtext", "I1 metric_logger.py:220] completed step: 4, seconds: 11.645, TFLOP/s/device: 194.526, Tokens/s/device: 4221.032, total_weights: 1572864, loss: 9.610, lm_loss: 9.610, perplexity: 14913.173",
     LoggedStep(4, seconds=11.645, gpu_tokens_per_second=4221.032, teraflops=194.526, loss=9.61)),
    # KellerJordan/modded-nanogpt: records 2026-05-20_BigramsSignTrick and 2024-12-04_ValueEmbed.
    ("modded-nanogpt", "step:2/1480 train_time:86ms step_avg:43.11ms",
     LoggedStep(2, elapsed=0.086)),
    ("modded-nanogpt", "step:2/1530 train_loss:10.0645 train_time:31881ms step_avg:nanms",
     LoggedStep(2, elapsed=31.881, loss=10.0645)),
    # pytorch/torchtune docs/source/tutorials/e2e_flow.rst and first_finetune_tutorial.rst at bd2a0fc, and metric_logging.py.
    ("torchtune", "1|3|Loss: 1.943998098373413:   0%|                    | 3/1617 [00:21<3:04:47,  6.87s/it]",
     LoggedStep(3, elapsed=21.0, loss=1.943998098373413)),
    ("torchtune", TUNE_OLD,
     LoggedStep(52, elapsed=24.0, loss=2.3697006702423096)),
    ("torchtune", TUNE_LINE,
     LoggedStep(52, gpu_tokens_per_second=1234.5, loss=2.3697, grad_norm=1.25)),
    # volcengine/verl: aggregate_logger.py at b178a3c with a run's values, and a log of 0.1 in its documentation.
    ("verl", "(TaskRunner pid=4711) step:2 - actor/entropy:np.float64(0.44) - actor/pg_loss:np.float64(-0.0125) - actor/grad_norm:2.06 - timing_s/step:48.7025266494602 - perf/total_num_tokens:159906 - perf/time_per_step:48.7025266494602 - perf/throughput:3283.320414789452 - perf/mfu/actor:0.31",
     LoggedStep(2, seconds=48.7025266494602, tokens=159906, gpu_tokens_per_second=3283.320414789452, mfu=0.31, loss=-0.0125, grad_norm=2.06)),
    ("verl", "    step:1 - timing/gen:23.020 - timing/ref:4.322 - critic/vf_loss:18.472 - critic/lr(1e-4):0.100 - timing/update_actor:20.526 - actor/entropy_loss:0.440 - actor/pg_loss:0.000 - actor/pg_clipfrac:0.002 - actor/grad_norm:2.060 - actor/lr(1e-4):0.010",
     LoggedStep(1, loss=0.0, grad_norm=2.06)),
    ("verl", "step:7 - train/loss:1.25 - train/grad_norm:0.5 - train/lr:1e-05 - train/time(s):2.5 - train/global_tokens:65536",
     LoggedStep(7, seconds=2.5, tokens=65536, loss=1.25, grad_norm=0.5)),
    # A log on GitHub of DeepSpeed 0.12, and engine.py of 0.18.
    ("deepspeed", "[2023-12-29 13:02:49,647] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=0, lr=[0.0003333333333333334], mom=[(0.9, 0.999)]",
     LoggedStep(10, elapsed=1703854969.647)),
    ("deepspeed", "[2026-01-05 00:00:10,500] [INFO] [logging.py:128:log_dist] [Rank 0] step=20, skipped=4, lr=[4.99e-05, 1e-3], mom=[(0.9, 0.95)]",
     LoggedStep(20, elapsed=1767571210.5)),
    # facebookresearch/fairseq issue 2338, train_gpt2.cu and train_gpt2.py of karpathy/llm.c at f1e2ace, train_gpt2_fp32.cu.
    ("fairseq", "2020-07-17 06:48:46 | INFO | train_inner | epoch 001:    100 / 167138 loss=15.073, ppl=34470.4, wps=4004.3, ups=4.08, wpb=980.3, num_updates=100, gnorm=7.216, wall=83",
     LoggedStep(100, elapsed=83, tokens=980.3, loss=15.073, grad_norm=7.216)),
    ("llm.c", "step   61/74 | loss 3.208939 (+nanz)| norm 1.4800 (+nanz)| lr 3.00e-04 | 44.57 ms | 45.5% bf16 MFU | 91886 tok/s",
     LoggedStep(61, seconds=0.04457, mfu=0.455, loss=3.208939, grad_norm=1.48)),
    ("llm.c", "step    1/10 | train loss 5.270007 | norm 30.2000 | lr 1.00e-04 | (133.24 ms | 30742 tok/s)",
     LoggedStep(1, seconds=0.13324, loss=5.270007, grad_norm=30.2)),
    ("llm.c", "step    1/37: train loss 4.367857 (133.240000 ms, 30742 tok/s)",
     LoggedStep(1, seconds=0.13324, loss=4.367857)),
    # hiyouga/LlamaFactory train/callbacks.py at ff6d4d12e.
    ("llama-factory", '{"current_steps": 10, "total_steps": 90, "loss": 1.5, "lr": 1e-05, "epoch": 0.1, "percentage": 11.11, "elapsed_time": "0:00:30", "remaining_time": "0:04:00", "throughput": 1365.3, "total_tokens": 40960}',
     LoggedStep(10, elapsed=30, loss=1.5)),
    ("huggingface", "{'loss': 0.5, 'grad_norm': 1.0, 'global_step/max_steps': '7/60', 'train_speed(s/it)': '55.54'}",
     LoggedStep(7, loss=0.5, grad_norm=1.0)),
]  # fmt: skip
"""Format, line, and the step that it is."""


@pytest.mark.parametrize(("name", "line", "expected"), LINES)
def test_a_line_gives_its_step(name: str, line: str, expected: LoggedStep) -> None:
    said = FORMATS[name].parser().feed(clean(line).text)
    assert isinstance(said, LoggedStep)
    assert {key: pytest.approx(value) for key, value in said._asdict().items() if value is not None} == {
        key: value for key, value in expected._asdict().items() if value is not None
    }


@pytest.mark.parametrize(
    "name", [name for name in FORMATS if name not in {"composer", "huggingface", "litgpt", "olmo-core"}]
)
def test_a_format_understands_its_own_lines_only(name: str) -> None:
    lines = [(theirs, clean(line).text) for theirs, line, _ in LINES]
    understood = [theirs for theirs, line in lines if isinstance(FORMATS[name].parser().feed(line), LoggedStep)]
    assert understood == [theirs for theirs, _ in lines if theirs == name]


@pytest.mark.parametrize(
    ("name", "line", "tag"),
    [
        ("megatron", "saving checkpoint at iteration     100 to /checkpoints", "checkpoint"),
        ("megatron", "  successfully saved checkpoint from iteration     100 to /checkpoints", "checkpoint"),
        ("megatron-deepspeed", " validation loss at iteration 100 on validation set | lm loss value: 2.1E+00 |", "eval"),
        ("deepspeed", "[INFO] [engine.py:3] Saving model checkpoint: /c/global_step10/mp_rank_00_model_states.pt", "checkpoint"),
        ("torchtitan", "[titan] - root - INFO - validate step:  4  loss:  7.1  memory: 1GiB(3%)  tps: 10,050", "eval"),
        ("torchtitan", "[titan] - root - INFO - Saving the checkpoint (or staging if async is enabled).", "checkpoint"),
        ("nanotron", "12/21 01:39:51 [WARNING|DP=0]: Saving checkpoint at checkpoints/10", "checkpoint"),
        ("nemo", "Scheduled async checkpoint save for /results/model.ckpt", "checkpoint"),
        ("nemo", "Validation DataLoader 0: 100%|##########| 10/10", "eval"),
        ("nanogpt", "step 2000: train loss 3.4312, val loss 3.5201", "eval"),
        ("nanogpt", "saving checkpoint to out", "checkpoint"),
        ("litgpt", "iter 100: val loss 3.4, val time: 5231.20 ms", "eval"),
        ("litgpt", "Saving checkpoint to 'out/step-00001000/lit_model.pth'", "checkpoint"),
        ("composer", "         Eval metrics/eval/LanguageCrossEntropy: 3.1", "eval"),
        ("gpt-neox", " validation results at iteration 1000 | lm_loss value: 6.9E+00 | lm_loss_ppl value: 990 |", "eval"),
        ("gpt-neox", "saving checkpoint at iteration     100 to /checkpoints", "checkpoint"),
        ("maxtext", "saved a checkpoint at step 100", "checkpoint"),
        ("maxtext", "Completed eval step 3", "eval"),
        ("modded-nanogpt", "step:1480/1480 val_loss:3.2798 train_time:84454ms step_avg:57.06ms", "eval"),
        ("torchtune", "INFO:torchtune.utils._logging:Saving checkpoint. This may take some time.", "checkpoint"),
        ("verl", "step:0 - val-core/openai/gsm8k/reward/mean@1:0.55 - val-aux/num_turns/mean:2.0", "eval"),
        ("olmo-core", "2026-01-01 00:00:00.000 INFO Saving checkpoint for step 1000 to '/c/step1000'...", "checkpoint"),
        ("fairseq", "| epoch 001 | valid on 'valid' subset | valid_loss 8.11425 | num_updates 600", "eval"),
        ("fairseq", "2020-07-17 06:48:46 | INFO | fairseq.checkpoint_utils | Preparing to save checkpoint for epoch 1 @ 600 updates", "checkpoint"),
        ("llm.c", "val loss 3.282551", "eval"),
        ("llm.c", "Writing state to log124M/state_00000500_00000.bin", "checkpoint"),
        ("llama-factory", '{"current_steps": 200, "total_steps": 900, "eval_loss": 1.4, "epoch": 0.9, "elapsed_time": "0:09:30"}', "eval"),
        ("huggingface", "{'eval_loss': 2.1, 'eval_runtime': 1.0, 'epoch': 1.0}", "eval"),
    ],
)  # fmt: skip
def test_what_is_no_training_step_becomes_the_next_ones_tag(name: str, line: str, tag: str) -> None:
    assert FORMATS[name].parser().feed(line) == LoggedPause(tag)


def test_the_manual_lists_every_format() -> None:
    page = (Path(__file__).parents[4] / "docs/training.md").read_text(encoding="utf-8")
    assert [name for name in FORMATS if f"\n| `{name}` | " not in page] == []


class TestComposer:
    def test_a_block_is_one_step_once_it_has_ended(self) -> None:
        parser = FORMATS["composer"].parser()
        block = ["[batch=12/20]:", "         Train time/train: 0.0500", "         Train loss/train/total: 7.1", "         Train throughput/device/tokens_per_sec: 7785.3322", "         Train throughput/device/mfu: 0.4644"]  # fmt: skip
        assert [parser.feed(line) for line in block] == [None] * 5
        ended = LoggedStep(12, elapsed=180.0, loss=7.1, gpu_tokens_per_second=7785.3322, mfu=0.4644)
        assert parser.feed("[epoch=1][batch=13/20]:") == ended

    def test_a_block_without_numbers_is_none(self) -> None:
        parser = FORMATS["composer"].parser()
        assert [parser.feed(line) for line in ("[batch=1/20]:", "something else", "[batch=2/20]:")] == [None] * 3


class TestOlmoCore:
    """allenai/OLMo-core console_logger.py and speed_monitor.py at fa6c501, allenai/OLMo train.py."""

    @pytest.mark.parametrize(
        ("head", "values", "expected"),
        [
            ("2026-01-01 00:00:00.000 node:0 INFO [step=10/715255,epoch=1,eta=9d 4h]",
             ("train/CE loss=10.95", "optim/total grad norm=1.5", "throughput/device/TPS=12,345", "throughput/device/BPS=0.5000",
              "throughput/device/BPS (actual avg)=0.4000", "throughput/device/MFU=41.20", "throughput/total tokens=41,943,040"),
             LoggedStep(10, seconds=2.0, gpu_tokens_per_second=12345, mfu=0.412, loss=10.95, grad_norm=1.5)),
            ("[step=20/715255]", ("train/CrossEntropyLoss=9.5", "throughput/device/tokens_per_second=5,000"),
             LoggedStep(20, gpu_tokens_per_second=5000, loss=9.5)),
        ],
    )  # fmt: skip
    def test_a_block_is_one_step_once_it_has_ended(
        self, head: str, values: tuple[str, ...], expected: LoggedStep
    ) -> None:
        parser = FORMATS["olmo-core"].parser()
        assert [parser.feed(line) for line in (head, *(f"    {value}" for value in values))] == [None] * (
            len(values) + 1
        )
        assert parser.feed("2026-01-01 00:00:04.000 node:0 INFO [step=30/715255,epoch=1]") == pytest.approx(expected)

    def test_a_line_of_progress_alone_is_no_step(self) -> None:
        parser = FORMATS["olmo-core"].parser()
        assert [parser.feed(f"[step={step}/???,epoch=1]") for step in (1, 2, 3)] == [None] * 3


class TestTorchtune:
    def test_lines_replace_the_bar_as_they_have_the_rate(self) -> None:
        parser = FORMATS["torchtune"].parser()
        assert isinstance(parser.feed(TUNE_OLD), LoggedStep)
        assert isinstance(parser.feed(TUNE_LINE), LoggedStep)
        assert parser.feed(TUNE_OLD.replace("|52|", "|53|")) is None


class TestHuggingFace:
    @pytest.mark.parametrize(
        "values", ["{'loss': 5.072, 'grad_norm': 20.19, 'learning_rate': 0.0, 'epoch': 0.009}", "{'loss': '5.072', 'grad_norm': '20.19', 'learning_rate': '0', 'epoch': '0.009'}"]
    )  # fmt: skip
    def test_versions_4_and_5_take_step_and_time_from_the_bar(self, values: str) -> None:
        parser = FORMATS["huggingface"].parser()
        assert parser.feed("  2%|▏         | 1/60 [01:02:03<54:36, 55.53s/it]") is None
        assert parser.feed(values) == LoggedStep(1, elapsed=3723.0, loss=5.072, grad_norm=20.19)

    def test_the_bar_may_stand_on_the_same_line(self) -> None:
        line = "  7%|▋         | 4/60 [00:55<54:36,  1.53it/s]{'loss': 1.5, 'epoch': 0.1}"
        assert FORMATS["huggingface"].parser().feed(line) == LoggedStep(4, elapsed=55.0, loss=1.5)

    def test_a_tokenizers_bar_is_not_the_trainings(self) -> None:
        parser = FORMATS["huggingface"].parser()
        parser.feed("Map (num_proc=8): 100%|██████████| 51760/51760 [10:00<00:00, 86.27 examples/s]")
        parser.feed("  7%|▋         | 4/60 [00:55<54:36,  1.53it/s]")
        assert parser.feed("{'loss': 1.5, 'epoch': 0.1}") == LoggedStep(4, elapsed=55.0, loss=1.5)

    def test_without_a_bar_a_loss_has_no_step(self) -> None:
        assert FORMATS["huggingface"].parser().feed("{'loss': 1.5, 'epoch': 0.1}") is None

    @pytest.mark.parametrize(
        "line", ["{'loss': nan, 'epoch': 1}", "{'loss': }", "{'loss': " + "[" * 200 + "}", "{'loss'}"]
    )
    def test_a_dict_that_is_none_breaks_nothing(self, line: str) -> None:
        parser = FORMATS["huggingface"].parser()
        parser.feed("| 4/60 [00:55<54:36")
        parser.feed(line)
        assert parser.feed("{'loss': 1.5}") == LoggedStep(4, elapsed=55.0, loss=1.5)


class TestLitgpt:
    def test_micro_batches_add_up_to_a_step(self) -> None:
        parser = FORMATS["litgpt"].parser()
        line = (
            "Epoch 1 | iter {} step {} | loss train: 10.932, val: n/a | iter time: {:.2f} ms{} remaining time: 0:10:17"
        )
        assert parser.feed(line.format(1, 0, 300, "")) is None
        assert parser.feed(line.format(2, 1, 350, " (step)")) == LoggedStep(1, seconds=pytest.approx(0.65), loss=10.932)
        assert parser.feed(line.format(3, 1, 100, "")) is None
        assert parser.feed(line.format(4, 2, 100, " (step)")) == LoggedStep(2, seconds=pytest.approx(0.2), loss=10.932)

    def test_with_lines_left_out_the_time_is_unknown(self) -> None:
        line = "Epoch 1 | iter 100 step 25 | loss train: 2.5, val: 2.6 | iter time: 100.00 ms (step) remaining time: 0:10:17"
        assert FORMATS["litgpt"].parser().feed(line) == LoggedStep(25, loss=2.5)


@pytest.mark.parametrize("name", sorted(FORMATS))
@pytest.mark.parametrize(
    "line",
    [
        "steps: 1 loss: 2 " * 3800,
        "iter 1 step 1 | loss train: " + "9" * 60_000,
        "iter 1: loss " + "9" * 60_000,
        "step: 1 loss: 2 " * 4000,
        "| 1/60 [" * 8000,
    ],
    ids=lambda line: line[:12],
)
def test_a_line_of_any_length_is_read_in_time(name: str, line: str) -> None:
    """An expression that tries again from every character takes minutes for one of these: the suite would not end."""
    FORMATS[name].parser().feed(line)


_PIECES = [
    *(line for _, line, _ in LINES),
    '{"current_steps": 1, "loss": 1e999, "elapsed_time": "9:9:9", "total_tokens": 1' + "0" * 400 + "}",
    "[step=1/2,epoch=1]",
    "    throughput/device/BPS=0.0",
    "[batch=1/2]:",
    "| 1/60 [00:55<",
    "9" * 5000,
]


@given(st.lists(st.one_of(st.text(max_size=80), st.sampled_from(_PIECES)), max_size=8), st.integers(0, 400))
def test_no_line_breaks_a_parser_and_no_number_is_not_a_number(pieces: list[str], cut: int) -> None:
    for found in FORMATS.values():
        parser = found.parser()
        for line in (*pieces, "".join(pieces)[cut:], "".join(pieces)[:cut]):
            said = parser.feed(clean(line).text)
            if isinstance(said, LoggedStep):
                assert all(value == value and abs(value) < 1e300 for value in said if value is not None)  # noqa: PLR0124
