# ruff: noqa: E501  what is said, as it is printed
from __future__ import annotations

import pytest

from pyrometer.follow.formats import all_formats
from pyrometer.follow.recorder import FirstStep
from pyrometer.follow.remarks import UNKNOWN_AFTER_SECONDS, UnknownLog, about_mfu

LATER = UNKNOWN_AFTER_SECONDS + 1


def unknown(*lines: str) -> UnknownLog:
    log = UnknownLog(all_formats())
    log.read(lines, 0.0)
    return log


def test_within_thirty_seconds_the_nearest_format_and_what_it_lacks_is_said() -> None:
    line = "iteration 42/ 500 | global batch size: 256 | lm loss: 3.2"
    assert LATER <= 30
    assert unknown("hello", line).remark(LATER) == (
        f"no training step in 2 lines so far: the most similar format is megatron, but {line!r} lacks 'elapsed time per iteration'; "
        "describe its lines with --pattern, or choose a --format"
    )


def test_where_no_format_is_near_the_likeliest_line_is_shown() -> None:
    remark = unknown("starting on 8 nodes", "Schritt 12 von 500: Verlust 2.31, 1.20 s", "ok").remark(LATER)
    assert remark is not None
    assert "no format is similar; the line most like a step is 'Schritt 12 von 500" in remark


@pytest.mark.parametrize(("lines", "said"), [((), "the log is empty so far"), (("a", "b"), "no line has a number")])
def test_a_log_without_numbers_is_said_to_be_one(lines: tuple[str, ...], said: str) -> None:
    assert said in str(unknown(*lines).remark(LATER))


def test_it_is_said_once_and_not_too_early() -> None:
    log = unknown("hello 1")
    assert log.remark(1.0) is None
    assert log.remark(LATER) is not None
    assert log.remark(LATER + 60) is None


def test_a_long_line_is_cut() -> None:
    assert len(str(unknown("step 1 " + "9 " * 4000).remark(LATER))) < 400


FIRST = FirstStep(step=10, seconds=2.0, tokens=1e6, flops=1e6 * 6e9, gpus=8)


def test_a_run_with_everything_has_no_remark() -> None:
    assert about_mfu(FIRST, flops_per_token=6e9, has_peak=True) is None


@pytest.mark.parametrize(
    ("first", "flops_per_token", "has_peak", "said"),
    [
        (FIRST, 6e9, False, "step 10: 3,000.0 TFLOP/s, 375.0 per GPU; no MFU, as the GPU is unknown (--gpu-model"),
        (
            FIRST._replace(gpus=0),
            6e9,
            True,
            "step 10: 3,000.0 TFLOP/s; no MFU, as the log doesn't print the number of GPUs",
        ),
        (
            FIRST._replace(tokens=0, flops=0),
            6e9,
            True,
            "no MFU, as the log doesn't print the tokens of a step (--tokens",
        ),
        (FIRST._replace(flops=0), None, False, "step 10: no MFU, as the FLOPs of a token are unknown"),
    ],
)
def test_what_mfu_lacks_is_said_with_the_speed(
    first: FirstStep, flops_per_token: float | None, has_peak: bool, said: str
) -> None:
    assert said in str(about_mfu(first, flops_per_token=flops_per_token, has_peak=has_peak))
