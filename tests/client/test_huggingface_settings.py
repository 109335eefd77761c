"""Trainers that a machine without GPUs can't have: several GPUs a process, several ranks a batch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pyrometer.huggingface import _trainer_settings

STATE = SimpleNamespace(global_step=0)


def arguments(**more: Any) -> Any:
    values: dict[str, Any] = {
        "output_dir": "out", "run_name": "r", "process_index": 0, "local_process_index": 0, "world_size": 1, "n_gpu": 1,
        "train_batch_size": 8, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 2, "bf16": True,
        "fp16": False, "gradient_checkpointing": False, "parallelism_config": None, "hf_deepspeed_config": None,
    }  # fmt: skip
    return SimpleNamespace(**{**values, **more})


def sizes(args: Any, **model: Any) -> tuple[int, int]:
    settings = _trainer_settings(args, STATE, SimpleNamespace(**model))
    return settings["world_size"], settings["global_batch_size"]


def test_one_process_drives_all_its_gpus_under_dataparallel() -> None:
    assert sizes(arguments(n_gpu=4, train_batch_size=32)) == (4, 64)


def test_one_process_drives_the_gpus_of_a_device_map() -> None:
    device_map = {"embed": 0, "layers.0": 0, "layers.1": 1, "layers.2": "cuda:2", "head": "cpu"}
    assert sizes(arguments(), hf_device_map=device_map) == (3, 16)


def test_a_machine_without_gpu_counts_its_process() -> None:
    assert sizes(arguments(n_gpu=0)) == (1, 16)


@pytest.mark.parametrize(
    ("more", "model"),
    [
        ({}, {"_tp_size": 4}),
        ({"parallelism_config": SimpleNamespace(tp_size=4, cp_size=1, sp_size=1)}, {}),
        ({"parallelism_config": SimpleNamespace(tp_size=1, cp_size=2, sp_size=2)}, {"_tp_size": None}),
        ({"parallelism_config": SimpleNamespace(tp_size=2, cp_size=2, sp_size=1)}, {"_tp_size": 2}),
        ({"hf_deepspeed_config": SimpleNamespace(config={"tensor_parallel": {"autotp_size": 4}})}, {}),
    ],
)
def test_ranks_that_share_a_batch_add_no_tokens(more: Any, model: Any) -> None:
    """As the Trainer's get_total_train_batch_size of transformers 5.23 counts."""
    assert sizes(arguments(world_size=8, **more), **model) == (8, 32)
