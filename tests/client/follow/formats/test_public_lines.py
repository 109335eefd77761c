# ruff: noqa: E501  lines of logs, as they are printed
"""Every format reads lines of public logs, quoted by source; the table in the manual has the same figures."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from pyrometer.follow.formats import all_formats
from pyrometer.follow.step_reader import JobSize, StepInterval, StepReader

FORMATS = all_formats()
# Read by its number of updates alone, which it printed from 0.7 on.
_NOT_READ = {"https://github.com/facebookresearch/fairseq/issues/301": 2}


class Quote(NamedTuple):
    """Lines of one public log."""

    format: str
    version: str
    source: str
    lines: list[str]
    steps: int

    def read(self, size: JobSize) -> tuple[str | None, list[StepInterval]]:
        """Read the lines without naming their format. Return the one found, and the steps."""
        reader = StepReader(FORMATS, size)
        intervals = list(reader.read(self.lines, 0.0))
        return reader.format, intervals


def _quotes() -> Iterator[Quote]:
    text = (Path(__file__).parent / "public_lines.txt").read_text(encoding="utf-8")
    for section in text.split("\n## ")[1:]:
        head, _, body = section.partition("\n")
        name, version, source = (head[: (first := head.index(","))], *head[first + 2 :].rsplit(", ", 1))
        lines = [line for line in body.split("\n") if line[:1] in {"+", "-"}]
        yield Quote(name, version, source, [line[1:] for line in lines], sum(line[0] == "+" for line in lines))


QUOTES = list(_quotes())
_IDS = [f"{quote.format}, {quote.version}" for quote in QUOTES]


def _count(quote: Quote) -> int:
    """Return how many lines are read as steps, the one counted that DeepSpeed's format needs to be sure."""
    name, intervals = quote.read(JobSize(samples=32))
    lone = quote.format == "deepspeed" and "CurrSamplesPerSec" not in quote.lines[0]
    return len(intervals) + lone if name == quote.format else 0


@pytest.mark.parametrize("quote", QUOTES, ids=_IDS)
def test_every_step_of_a_public_log_is_read_and_nothing_else(quote: Quote) -> None:
    assert _count(quote) == quote.steps - _NOT_READ.get(quote.source, 0)


def test_every_format_was_read_in_public_logs() -> None:
    assert {quote.format for quote in QUOTES} == set(FORMATS)


def test_the_manual_has_these_figures() -> None:
    page = (Path(__file__).parents[4] / "docs/training.md").read_text(encoding="utf-8")
    quoted, read, logs = defaultdict(int), defaultdict(int), defaultdict(int)  # type: ignore[var-annotated]
    for quote in QUOTES:
        quoted[quote.format] += quote.steps
        read[quote.format] += _count(quote)
        logs[quote.format] += 1
    expected = {
        name: f"{read[name]} of {quoted[name]}, {logs[name]} logs".replace(" 1 logs", " 1 log") for name in FORMATS
    }
    told = {name: re.search(rf"\n\| `{re.escape(name)}` \|.*\| ([^|]*) \|\n", page) for name in FORMATS}
    assert {name: match and match[1].partition(";")[0] for name, match in told.items()} == expected


def _read(source: str, size: JobSize | None = None) -> list[StepInterval]:
    return next(quote for quote in QUOTES if source in quote.source).read(size or JobSize())[1]


def test_old_nanotron_counts_its_batch_in_sequences() -> None:
    """22.8K tokens a second for 11.5 s are 262 thousand: 64 sequences of 4,096, not 64 tokens."""
    steps = _read("nanotron/issues/390")
    assert {step.logged.tokens for step in steps} == {None}
    assert {JobSize(sequence=4096).tokens_of(step.logged) for step in steps} == {262_144}


def test_fairseq_is_timed_by_words_where_its_clock_agrees() -> None:
    gpu = [step.seconds for step in _read("fairseq/issues/2338")]
    assert gpu == [None, *(pytest.approx(seconds, rel=1e-3) for seconds in (0.24474, 0.24509, 0.24529))]


def test_fairseq_on_a_tpu_is_timed_by_its_clock() -> None:
    tpu = next(quote for quote in QUOTES if quote.version == "0.9 on a TPU")
    assert [step.seconds for step in tpu.read(JobSize())[1]] == [None, pytest.approx(0.29)]


def test_fairseq_before_0_9_has_no_means_of_the_epoch() -> None:
    steps = _read("fairseq/issues/940")
    assert [(step.logged.step, step.seconds, step.logged.loss) for step in steps] == [
        (445, None, None), (495, pytest.approx(91 / 50), None), (645, pytest.approx(290 / 150), None)
    ]  # fmt: skip
    assert [sorted(step.tags) for step in steps] == [[], [], ["eval"]]


def test_gpt_neox_takes_its_batch_from_rate_and_time() -> None:
    (step,) = _read("gpt-neox/pull/1000")
    assert (step.logged.samples, step.seconds, step.logged.teraflops) == (128, pytest.approx(9.5956), 193.1)


def test_two_processes_that_write_one_llama_factory_log_are_one() -> None:
    steps = [(step.logged.step, step.restarted, step.seconds) for step in _read("SFT-Training-LLM")]
    assert steps == [(230, True, None), (240, False, 14.1), (250, False, 14.6)]


def test_llm_c_counts_its_gpus_and_tokens() -> None:
    steps = _read("llm.c/discussions/677")
    assert [(step.gpus, step.logged.tokens) for step in steps] == [(8, 1_048_576)] * 3


def test_two_ranks_that_print_alike_are_one_log() -> None:
    assert [step.seconds for step in _read("litgpt/issues/1793")] == pytest.approx([3.88213, 11.19295, 3.6836])


def test_the_bar_of_nemo_1_is_timed_by_its_clock() -> None:
    steps = [(step.logged.step, step.seconds) for step in _read("hyperpod_slurm")]
    assert steps == [(34103, None), (34106, pytest.approx(2 / 3)), (34109, pytest.approx(2 / 3))]


def test_litgpt_of_2023_adds_up_its_micro_batches() -> None:
    steps = [(step.logged.step, step.seconds) for step in _read("litgpt/issues/834")]
    assert steps == [(1, pytest.approx(1.83505)), (2, pytest.approx(1.24776)), (3, pytest.approx(1.26161))]


def test_llama_factory_is_timed_by_its_clock() -> None:
    assert [step.seconds for step in _read("LlamaFactory/issues/774")] == [None, 5.8, 5.8]


def test_llm_c_takes_the_tokens_that_it_printed_before() -> None:
    head = "batch_size B=4 * seq_len T=1024 * num_processes=2 and total_batch_size=8192"
    line = "step    1/74 | loss 4.367 (+nanz)| norm 15.4 (+nanz)| lr 3.00e-04 | 89.0 ms | 45.5% bf16 MFU | 92045 tok/s"
    reader = StepReader(FORMATS, JobSize())
    (step,) = reader.read([head, line], 0.0)
    assert (step.logged.tokens, step.seconds, step.gpus) == (8192, pytest.approx(0.089), 2)
    assert step.logged.mfu == pytest.approx(0.455)


def test_llama_factory_takes_tokens_from_the_totals() -> None:
    line = '{{"current_steps": {}, "total_steps": 90, "loss": 1.5, "lr": 1e-05, "epoch": 0.1, "elapsed_time": "{}", "total_tokens": {}}}'
    lines = [line.format(10, "0:00:30", 40_960), line.format(20, "1 day, 0:01:00", 81_920)]
    first, second = StepReader(FORMATS, JobSize()).read(lines, 0.0)
    assert (first.logged.tokens, second.logged.tokens, second.seconds) == (None, 4096, 8643.0)
