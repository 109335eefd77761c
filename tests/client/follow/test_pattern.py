# ruff: noqa: E501  lines of logs, as they are printed
"""Formats that no code knows, described by patterns; the lines are those of the trainers named."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrometer.follow import pattern as pattern_module
from pyrometer.follow import small_yaml
from pyrometer.follow.log_line import LoggedPause, LoggedStep
from pyrometer.follow.pattern import describe, format_of, read_description

ROOT = Path(__file__).parents[3]

# facebookresearch/mae and torchvision references: values as "last (mean)".
VISION = "Epoch: [0]  [  20/1251]  eta: 0:12:34  lr: 0.000500  loss: 6.9121 (6.9300)  time: 0.3105 (0.4120)  data: 0.0002 (0.1)  max mem: 11000"
# PaddlePaddle/PaddleNLP: rates in words, thousands with commas.
PADDLE = "[2024-05-01 10:00:00,000] [    INFO] - loss: 10.93, learning_rate: 3e-05, global_step: 1,020, interval_runtime: 8.25 s, ips: 15,887.5 tokens/s"
# open-mmlab/mmengine.
MMENGINE = "05/01 10:00:00 - mmengine - INFO - Epoch(train) [1][ 50/1000]  lr: 1.0000e-02  eta: 1:00:00  time: 250 ms  data_time: 0.01  loss: 2.3"


def feed(patterns: list[str], *lines: str, **more: object) -> list[LoggedStep | LoggedPause]:
    parser = format_of(describe(patterns, **more)).parser()  # type: ignore[arg-type]
    return [said for line in lines if (said := parser.feed(line)) is not None]


@pytest.mark.parametrize(
    ("pattern", "line", "expected"),
    [
        (r"\[\s*(?P<step>\d+)/.*loss: (?P<loss>.*?)  time: (?P<seconds>.*?)  data", VISION,
         LoggedStep(20, loss=6.9121, seconds=0.3105)),
        (r"loss: (?P<loss>[\d.]+), .*global_step: (?P<step>[\d,]+), interval_runtime: (?P<seconds>.*?), ips: (?P<tokens_per_second>.*)", PADDLE,
         LoggedStep(1020, loss=10.93, seconds=8.25, tokens_per_second=15887.5)),
        (r"\]\[\s*(?P<step>\d+)/.*  time: (?P<seconds>.*?)  .*loss: (?P<loss>\S+)", MMENGINE, LoggedStep(50, loss=2.3, seconds=0.25)),
        (r"(?P<step>\d+) mfu=(?P<mfu>\S+)", "7 mfu=41.5", LoggedStep(7, mfu=0.415)),
        (r"(?P<step>\d+) mfu=(?P<mfu>\S+)", "7 mfu=0.415", LoggedStep(7, mfu=0.415)),
    ],
)  # fmt: skip
def test_a_pattern_reads_a_format_that_no_code_knows(pattern: str, line: str, expected: LoggedStep) -> None:
    assert feed([pattern], line) == [pytest.approx(expected)]


def test_the_mean_of_a_pair_counts_where_it_is_asked_for() -> None:
    pattern = r"\[\s*(?P<step>\d+)/.*loss: (?P<loss>.*?)  time: (?P<seconds>.*?)  data"
    assert feed([pattern], VISION, means=["seconds"]) == [LoggedStep(20, loss=6.9121, seconds=0.412)]


SEVERAL = [r"^iteration (?P<step>\d+)", r"^\s+loss: (?P<loss>\S+)", r"^\s+took (?P<seconds>.*)"]


@pytest.mark.parametrize("number_first", [True, False])
def test_several_lines_make_one_step_as_soon_as_all_were_seen(number_first: bool) -> None:
    steps = [["iteration 1", "  loss: 2.5", "  took 300 ms"], ["iteration 2", "  loss: 2.4", "  took 310 ms"]]
    lines = [line for step in steps for line in (step if number_first else [*step[1:], step[0]])]
    assert feed(SEVERAL, *lines) == [
        LoggedStep(1, loss=2.5, seconds=0.3),
        LoggedStep(2, loss=2.4, seconds=pytest.approx(0.31)),
    ]


def test_a_number_with_a_unit_is_no_step() -> None:
    parser = format_of(describe([r"step (?P<step>\S+)"])).parser()
    assert parser.feed("step 1.2k") is None
    assert parser.feed("step 12k") is None
    assert parser.feed("step 12/500") == LoggedStep(12)


def test_a_step_that_lacks_a_line_ends_with_the_next() -> None:
    lines = ["iteration 1", "  loss: 2.5", "iteration 2", "  loss: 2.4", "  took 310 ms"]
    assert feed(SEVERAL, *lines) == [LoggedStep(1, loss=2.5), LoggedStep(2, loss=2.4, seconds=pytest.approx(0.31))]


def test_pauses_have_patterns_of_their_own() -> None:
    patterns = [r"step (?P<step>\d+)", r"(?P<checkpoint>saving)", r"(?P<eval>validating)"]
    assert feed(patterns, "step 1", "saving to /c", "validating", "step 2") == [
        LoggedStep(1), LoggedPause("checkpoint"), LoggedPause("eval"), LoggedStep(2),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("patterns", "message"),
    [
        ([r"loss (?P<loss>\S+)"], "no pattern has the group step"),
        ([r"step (?P<step>\d+"], "is not a regular expression"),
        ([r"step (?P<step>\d+) (?P<speed>\d+)"], "unknown group speed in"),
        ([r"step (?P<step>\d+)", r"\d+"], "has no named group"),
    ],
)
def test_a_pattern_that_cannot_work_is_one_line(patterns: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        describe(patterns)
    assert "\n" not in str(raised.value)


FILE = r"""# ours
name: our-trainer
convention: megatron
lines:
  - 'iter (?P<step>[\d,]+)/'   # the head
  - "loss (?P<loss>\\S+), time (?P<seconds>\\S+)"
units: {seconds: ms}
mean: loss
"""


class TestFile:
    def write(self, folder: Path, text: str) -> Path:
        path = folder / "ours.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    def test_a_file_has_units_and_means(self, tmp_path: Path) -> None:
        described = read_description(self.write(tmp_path, FILE))
        assert (described.name, described.convention) == ("our-trainer", "megatron")
        parser = format_of(described).parser()
        assert parser.feed("iter 1,000/2,000") is None
        assert parser.feed("loss 2.5/2.4, time 310") == LoggedStep(1000, loss=2.4, seconds=pytest.approx(0.31))

    def test_the_documented_file_is_read(self, tmp_path: Path) -> None:
        page = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
        (block,) = [block for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "units:" in block]
        described = read_description(self.write(tmp_path, block))
        assert (described.name, described.convention, len(described.lines)) == ("our-trainer", "megatron", 3)
        assert (described.units, described.means) == ({"seconds": "ms"}, {"loss"})

    def test_the_modules_example_is_read(self, tmp_path: Path) -> None:
        example = textwrap.dedent((pattern_module.__doc__ or "").partition("The file:\n\n")[2])
        described = read_description(self.write(tmp_path, example))
        assert (described.units, described.means, len(described.lines)) == ({"seconds": "ms"}, {"loss"}, 2)

    def test_the_files_own_name_is_the_formats(self, tmp_path: Path) -> None:
        assert read_description(self.write(tmp_path, r"lines: 'step (?P<step>\d+)'")).name == "ours"

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "no pattern has the group step"),
            ("lines: [a]", "has no named group"),
            ("lines: [a", "is not a regular expression"),
            ("line: x", "unknown key line; known are"),
            (FILE.replace("{seconds: ms}", "{seconds: furlongs}"), "unknown unit furlongs of seconds"),
            (FILE.replace("{seconds: ms}", "ms"), "units is not a mapping"),
            (FILE.replace("mean: loss", "mean: losses"), "unknown value losses in mean"),
            ("what is this", "line 1 is not 'key: value'"),
            ("lines: x\n  - y", "line 2 does not belong to the key above"),
        ],
    )
    def test_a_file_that_cannot_work_is_one_line(self, tmp_path: Path, text: str, message: str) -> None:
        with pytest.raises(ValueError, match=message) as raised:
            read_description(self.write(tmp_path, text))
        assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[a, b]  # ours", ["a", "b"]),
        ("[a] # not ] this", ["a"]),
        ("['a, b', \"c, \\\"d\", it's, e#f]", ["a, b", 'c, "d', "it's", "e#f"]),
        ("['a # b', 'it''s, c'] # d", ["a # b", "it's, c"]),
        ("{a: b, c: 'd, e'} # f", {"a": "b", "c": "d, e"}),
        ("[step (?P<step>[0-9]+)]", ["step (?P<step>[0-9]+)"]),
        ("[] # none", []),
        ("[ # open", "["),
    ],
)
def test_comments_and_commas_in_brackets(text: str, value: object) -> None:
    assert small_yaml.parse(f"key: {text}") == {"key": value}


@given(st.text(alphabet="ab:-{}[]'\"#,\n ?P<step>\\d+().", max_size=120))
def test_any_file_is_parsed_or_one_line(text: str) -> None:
    said = ""
    try:
        content = small_yaml.parse(text)
    except ValueError as error:
        said = str(error)
    else:
        assert all(isinstance(value, (str, list, dict)) for value in content.values())
    assert "\n" not in said


@given(st.lists(st.text(max_size=60), max_size=12))
def test_no_line_breaks_the_parser(lines: list[str]) -> None:
    feed([r"(?P<step>[\d, ]+)", r"l(?P<loss>.*)", r"t(?P<seconds>.*)"], *lines, VISION, *lines)
