# ruff: noqa: E501  lines of logs, as they are printed
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrometer.follow.gpu_count import GpuCount
from pyrometer.follow.log_line import LoggedStep


@pytest.mark.parametrize(
    ("lines", "gpus"),
    [
        (["using world size: 384, data-parallel-size: 8, tensor-model-parallel size: 4, pipeline-model-parallel size: 12 "], 384),
        (["using world size: 8, data-parallel size: 1, context-parallel size: 1, tensor-model-parallel size: 8"], 8),
        (["[2026-11-22 05:27:36,833] [INFO] [launch.py:170:main] dist_world_size=16"], 16),
        (["Discovered MPI settings of world_rank=3, local_rank=1, world_size=32, master_addr=a, master_port=1"], 32),
        (["All distributed processes registered. Starting with 24 processes"], 24),
        (["[titan] - root - INFO - Building device mesh with parallelism: pp=2, dp_replicate=1, dp_shard=8, cp=2, tp=4, ep=8"], 128),
        (
            [
                "[INFO|trainer.py:1622] >>   Instantaneous batch size per device = 4",
                "[INFO|trainer.py:1625] >>   Total train batch size (w. parallel, distributed & accumulation) = 1,024",
                "[INFO|trainer.py:1626] >>   Gradient Accumulation steps = 2",
            ],
            128,
        ),
        (["num_gpus_per_node: 8", "num_nodes: 4"], 32),
        (["num_nodes: 4"], 0),
        (["tensor model parallel world size: 8", "local world_size=8", "[Rank 0] world_size ............. 8"], 0),
    ],
)  # fmt: skip
def test_what_each_framework_says(lines: list[str], gpus: int) -> None:
    counter = GpuCount()
    for line in lines:
        counter.feed(line)
    assert counter.gpus == gpus


@pytest.mark.parametrize(
    ("samples", "sequence", "seconds", "rate", "gpus"),
    [(768, 4096, 14.2875, 1146.733, 192), (1536, 2048, 344.6561, 142.612, 64), (768, 4096, 14.2875, 1200.5, 0)],
)
def test_a_line_with_tokens_time_and_rate_says_it_by_arithmetic(
    samples: int, sequence: int, seconds: float, rate: float, gpus: int
) -> None:
    counter = GpuCount()
    counter.feed_step(LoggedStep(1, seconds=seconds, samples=samples, sequence=sequence, gpu_tokens_per_second=rate))
    assert counter.gpus == gpus


@given(st.text())
def test_any_text_is_survived(text: str) -> None:
    counter = GpuCount()
    counter.feed(text)
    assert counter.gpus >= 0
