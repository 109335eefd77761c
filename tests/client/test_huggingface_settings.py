"""Trainers that a machine without GPUs can't have: several GPUs a process, several ranks a batch."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from pyrometer.huggingface import _trainer_settings
from pyrometer.lightning import _dtype_of

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


@pytest.mark.parametrize(
    ("args", "model", "dtype"),
    [
        ({"bf16": True}, {"dtype": "torch.float32"}, "bf16"),
        ({"bf16": False, "fp16": True}, {}, "fp16"),
        ({"bf16": False}, {"dtype": "torch.bfloat16"}, "bfloat16"),
        ({"bf16": False}, {"dtype": "torch.float32"}, "fp32"),
        ({"bf16": False}, {"dtype": "torch.float32", "is_quantized": True}, ""),
        ({"bf16": False}, {}, ""),
    ],
)
def test_the_dtype_is_that_of_autocast_or_of_the_weights(
    monkeypatch: pytest.MonkeyPatch, args: Any, model: Any, dtype: str
) -> None:
    torch = SimpleNamespace(get_float32_matmul_precision=lambda: "highest")
    monkeypatch.setitem(sys.modules, "torch", torch)  # type: ignore[arg-type]
    assert _trainer_settings(arguments(**args), STATE, SimpleNamespace(**model))["dtype"] == dtype


@pytest.mark.parametrize(("precision", "dtype"), [("highest", "fp32"), ("high", "tf32"), ("medium", "tf32")])
def test_products_of_32_bits_have_the_peak_that_torch_may_use(
    monkeypatch: pytest.MonkeyPatch, precision: str, dtype: str
) -> None:
    torch = SimpleNamespace(get_float32_matmul_precision=lambda: precision)
    monkeypatch.setitem(sys.modules, "torch", torch)  # type: ignore[arg-type]
    model = SimpleNamespace(dtype="torch.float32")
    assert _trainer_settings(arguments(bf16=False), STATE, model)["dtype"] == dtype
    assert _dtype_of("32-true") == dtype


@pytest.mark.parametrize(
    ("precision", "dtype"),
    [
        ("bf16-mixed", "bf16"), ("bf16-true", "bf16"), ("16-mixed", "fp16"), ("16-true", "fp16"), ("64-true", "fp64"),
        ("transformer-engine", "fp8"), ("transformer-engine-float16", "fp8"), ("", ""), ("of tomorrow", ""),
    ],
)  # fmt: skip
def test_lightnings_precision_gives_the_dtype(precision: str, dtype: str) -> None:
    """Every value of ``_PRECISION_INPUT`` in lightning.fabric 2.6; 32-true is above."""
    assert _dtype_of(precision) == dtype
