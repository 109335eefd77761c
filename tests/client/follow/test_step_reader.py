# ruff: noqa: E501  lines of logs, as they are printed
from __future__ import annotations

import pytest

from pyrometer.follow.formats import all_formats
from pyrometer.follow.log_line import CleanLine, LoggedStep, clean, parse_number
from pyrometer.follow.step_reader import MAX_SILENT_STEPS, JobSize, StepInterval, StepReader

FORMATS = all_formats()


def megatron(step: int, seconds: float = 2.0, batch: int = 512) -> str:
    return (
        f" iteration {step:8}/ 1000 | elapsed time per iteration (ms): {seconds * 1e3} | global batch size: {batch:5} | "
        "lm loss: 2.0E+00 |"
    )


def titan(step: int, tps: int = 1000) -> str:
    return f"[titan] - root - INFO - step: {step}  loss: 5.1  grad_norm: 1.2  memory: 1GiB(1%)  tps: {tps:,}  mfu: N/A"


def read(lines: list[str], sizes: JobSize | None = None) -> list[StepInterval]:
    return list(StepReader(FORMATS, sizes or JobSize()).read(lines, 0.0))


def test_the_first_line_that_any_format_understands_decides() -> None:
    steps = StepReader(FORMATS, JobSize())
    lines = ["hello", "training ...", megatron(1), titan(2), megatron(2)]
    assert [step.logged.step for step in steps.read(lines, 0.0)] == [1, 2]
    assert steps.format == "megatron"


ENGINE = "[2026-01-05 00:00:{:02},500] [INFO] [logging.py:128:log_dist] [Rank 0] step={}, skipped=0, lr=[1e-4], mom=[(0.9, 0.95)]"


def test_deepspeeds_engine_lines_are_timed_by_their_own_clock() -> None:
    steps = StepReader(FORMATS, JobSize())
    found = list(steps.read([ENGINE.format(second, second) for second in (10, 20, 40)], 0.0))
    assert [(each.logged.step, each.steps, each.seconds) for each in found] == [(20, 10, 1.0), (40, 20, 1.0)]
    assert [each.restarted for each in found] == [True, False]


def test_of_a_trainer_on_deepspeed_its_own_lines_count() -> None:
    steps = StepReader(FORMATS, JobSize())
    lines = [ENGINE.format(10, 10), megatron(10), ENGINE.format(20, 20), megatron(20)]
    assert [each.logged.step for each in steps.read(lines, 0.0)] == [10, 20]
    assert steps.format == "megatron"


def test_the_engines_lines_alone_are_read_at_once_where_the_format_is_named() -> None:
    steps = StepReader({"deepspeed": FORMATS["deepspeed"]}, JobSize())
    assert [each.logged.step for each in steps.read([ENGINE.format(10, 10), ENGINE.format(20, 20)], 0.0)] == [10, 20]


def test_a_line_every_ten_steps_stands_for_ten_steps_of_its_mean_time() -> None:
    first, second = read([megatron(10), megatron(20, 3.0)])
    assert (first.steps, first.seconds) == (1, 2.0)
    assert (second.steps, second.seconds, second.restarted) == (10, 3.0, False)


def test_a_count_that_goes_back_is_another_attempt() -> None:
    steps = read([megatron(100), megatron(101), megatron(91), megatron(92)])
    assert [(step.restarted, step.steps) for step in steps] == [(True, 1), (False, 1), (True, 1), (False, 1)]


def test_of_interleaved_ranks_the_first_is_followed() -> None:
    lines = [f"[rank{rank}]:{titan(step, 1000 + rank)}" for step in (1, 2) for rank in (3, 0, 1)]
    assert [(step.logged.step, step.logged.gpu_tokens_per_second) for step in read(lines)] == [(1, 1003), (2, 1003)]


def test_when_the_followed_rank_is_gone_another_is_followed() -> None:
    steps = StepReader(FORMATS, JobSize())
    list(steps.read([f"[rank7]:{titan(1)}", f"[rank3]:{titan(1)}"], 0.0))
    lines = [f"[rank{rank}]:{titan(step)}" for step in range(2, 30) for rank in (3, 4)]
    found = [step.logged.step for step in steps.read(lines, 0.0)]
    assert found == list(range(1 + MAX_SILENT_STEPS - 1, 30))


def test_a_rank_that_prints_late_is_not_gone() -> None:
    steps = StepReader(FORMATS, JobSize())
    lines = [
        line for step in range(1, 50) for line in (f"[rank3]:{titan(step)}", "[rank3]:x", f"[rank0]:{titan(step)}")
    ]
    assert [step.restarted for step in steps.read(lines, 0.0)] == [True] + [False] * 48


@pytest.mark.parametrize("garbled", [megatron(2, 1e300), megatron(2, -5.0)])
def test_a_time_that_no_step_takes_is_unknown(garbled: str) -> None:
    first, second = read([megatron(1), garbled])
    assert (first.seconds, second.seconds) == (2.0, None)


@pytest.mark.parametrize("torn", [12_341_235, 10**14, 1235 + 101])
def test_a_torn_line_with_a_number_too_far_on_is_passed_over(torn: int) -> None:
    found = read([megatron(step) for step in (1220, 1230, torn, 1240, 1250)])
    assert [(step.logged.step, step.steps, step.restarted) for step in found] == [
        (1220, 1, True), (1230, 10, False), (1240, 10, False), (1250, 10, False),
    ]  # fmt: skip


def test_a_number_far_on_from_which_the_log_goes_on_is_believed() -> None:
    """As where the follower's file server was away, or the log's interval was changed."""
    found = read([megatron(step) for step in (10, 11, 512, 1024)])
    assert [(step.logged.step, step.steps) for step in found] == [(10, 1), (11, 1), (512, 501), (1024, 512)]


def test_after_a_torn_line_a_restart_is_still_one() -> None:
    found = read([megatron(step) for step in (100, 101, 101_102, 50, 51)])
    assert [(step.logged.step, step.restarted) for step in found] == [
        (100, True),
        (101, False),
        (50, True),
        (51, False),
    ]


@pytest.mark.parametrize("tokens", [1e16, -1.0])
def test_tokens_that_no_batch_has_are_unknown(tokens: float) -> None:
    assert JobSize().tokens_of(LoggedStep(1, tokens=tokens)) == 0


def test_a_step_printed_twice_counts_once() -> None:
    assert len(read([megatron(1), megatron(1), megatron(2)])) == 2


def test_checkpoint_and_evaluation_tag_the_step_whose_time_they_lie_in() -> None:
    lines = [
        megatron(1),
        "saving checkpoint at iteration 1 to /c",
        " validation loss at iteration 1 | x",
        megatron(2),
        megatron(3),
    ]
    assert [step.tags for step in read(lines)] == [set(), {"checkpoint", "eval"}, set()]


@pytest.mark.parametrize(
    ("line", "sizes", "seconds"),
    [
        (titan(1, 10_000), JobSize(gpus=8, tokens=160_000), 2.0),
        (titan(1, 10_000), JobSize(gpus=8, samples=20, sequence=8000), 2.0),
        (titan(1, 10_000), JobSize(gpus=8), None),
        ("x 0/20, RunningAvgSamplesPerSec=9.8, CurrSamplesPerSec=10.0, M", JobSize(samples=25), 2.5),
        ("x 0/20, RunningAvgSamplesPerSec=9.8, CurrSamplesPerSec=10.0, M", JobSize(), None),
        (megatron(1), JobSize(), 2.0),
    ],
)
def test_the_time_of_a_step_follows_from_its_rate_and_size(line: str, sizes: JobSize, seconds: float | None) -> None:
    (step,) = read([line], sizes)
    assert step.seconds == seconds


def test_the_number_of_gpus_is_that_of_the_caller_else_that_of_the_log() -> None:
    world = "using world size: 16, data-parallel size: 8, tensor-model-parallel size: 2"
    assert [step.gpus for step in read([world, titan(1)])] == [16]
    assert [step.gpus for step in read([world, titan(1)], JobSize(gpus=8))] == [8]
    assert [step.gpus for step in read([titan(1)])] == [0]
    (step,) = read([world, titan(1, 10_000)], JobSize(tokens=160_000))
    assert step.seconds == 1.0


def test_an_attempt_on_fewer_gpus_has_fewer() -> None:
    lines = ["using world size: 16, data-parallel size: 8", megatron(5), "using world size: 8, data-parallel size: 4"]
    assert [step.gpus for step in read([*lines, megatron(4)])] == [16, 8]


def test_the_batch_that_a_line_prints_beats_the_one_that_was_given() -> None:
    (step,) = read([megatron(1, batch=16)], JobSize(samples=512, sequence=2048))
    assert JobSize(samples=512, sequence=2048).tokens_of(step.logged) == 16 * 2048


def test_without_any_time_the_arrival_of_the_lines_tells() -> None:
    steps = StepReader(FORMATS, JobSize())
    (first,) = steps.read([titan(10)], 100.0)
    (second,) = steps.read([titan(20)], 150.0)
    assert (first.seconds, second.seconds) == (None, 5.0)
    (again,) = steps.read([titan(11)], 160.0)
    assert again.seconds is None  # nobody knows how long the restart took


def test_the_logs_own_clock_goes_before_the_arrival() -> None:
    steps = StepReader(FORMATS, JobSize())
    lines = ["| 10/60 [00:50<1:00, 5s/it]{'loss': 1}", "| 20/60 [02:30<1:00, 5s/it]{'loss': 1}"]
    assert [step.seconds for step in steps.read(lines, 0.0)] == [None, 10.0]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("plain", CleanLine("plain", "")),
        ("[default7]: iteration", CleanLine("iteration", "7")),
        (" 12: [rank3]:text", CleanLine("text", "12/3")),
        ("\x1b[38;2;1;2;3mred\x1b[0m\r\n", CleanLine("red", "")),
        ("2026: a year", CleanLine("a year", "2026")),
        ("10:23:45 time", CleanLine("10:23:45 time", "")),
    ],
)
def test_colours_and_launchers_prefixes_go(line: str, expected: CleanLine) -> None:
    assert clean(line) == expected


@pytest.mark.parametrize(
    ("text", "value"),
    [("1,234", 1234), ("8.79K", 8790), ("1.6M", 1.6e6), ("480B", 480e9), ("13.99%", 0.1399), ("3.2E-04", 3.2e-4), ("-1", -1), (".5", 0.5), ("nan", None), ("N/A", None), ("", None), ("1e999", None), ("12 ms", None), ("9" * 60_000 + "x", None)],
)  # fmt: skip
def test_numbers_as_logs_write_them(text: str, value: float | None) -> None:
    assert parse_number(text) == (value if value is None else pytest.approx(value))
