"""A metric logger as torchtune's recipes use one; the real recipe has tests of its own."""

from __future__ import annotations

from typing import Any

import pytest
from client_ring_reader import ReadRing

from pyrometer.torchtune import MetricLogger, metric_logger

CONFIG = {
    "log_every_n_steps": 1, "dtype": "bf16", "batch_size": 2, "gradient_accumulation_steps": 4,
    "enable_activation_checkpointing": True, "model": {"_component_": "torchtune.models.llama3.llama3_8b"},
}  # fmt: skip


class Beside:
    """Another logger."""

    def __init__(self, log_dir: str = "") -> None:
        self.log_dir = log_dir
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *_: self.calls.append(name)


def begun(rings: str, **more: Any) -> tuple[MetricLogger, str]:
    logger = metric_logger(run="tiny", rings=rings, **more)
    logger.log_config(CONFIG)
    run = logger._run
    assert run is not None
    assert run.path is not None
    return logger, str(run.path)


def test_a_step_ends_where_it_is_logged_from_the_second_on(rings: str, seen: ReadRing) -> None:
    logger, path = begun(rings)
    for step in range(3):
        logger.log_dict({"loss": float(step), "grad_norm": 1.0, "lr": 1e-3, "peak_memory_alloc": 3.0}, step + 1)
    logger.close()
    ring = seen(path)
    assert [record.loss for record in ring.records] == [1.0, 2.0]
    assert ring.header.closed
    texts = ring.meta.texts
    assert (texts["dtype"], texts["global_batch_size"], texts["recompute"]) == ("bf16", "8", "full")
    assert texts["model"] == "llama3_8b"


def test_tensor_parallel_ranks_share_a_batch(rings: str, seen: ReadRing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "8")
    logger = metric_logger(run="tiny", rings=rings)
    logger.log_config({**CONFIG, "tensor_parallel_dim": 2})
    assert logger._run is not None
    assert seen(str(logger._run.path)).meta.texts["global_batch_size"] == "32"


def test_a_validation_is_no_step(rings: str, seen: ReadRing) -> None:
    logger, path = begun(rings)
    for payload in ({"loss": 1.0}, {"val_loss": 1.0}, {"loss": 2.0}):
        logger.log_dict(payload, 1)
    logger.close()
    assert [record.loss for record in seen(path).records] == [2.0]


def test_the_logger_beside_gets_everything(rings: str) -> None:
    beside = Beside()
    logger, _ = begun(rings, beside=beside)
    logger.log_dict({"loss": 1.0}, 1)
    logger.log("lr", 1.0, 1)
    logger.close()
    assert beside.calls == ["log_config", "log_dict", "log", "close"]


def test_the_logger_beside_is_made_from_its_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collections.Counter", Beside)
    made = metric_logger(beside={"_component_": "collections.Counter", "log_dir": "logs"})
    assert made._beside.log_dir == "logs"


def test_what_a_recipe_does_not_have_is_left_out(rings: str, seen: ReadRing) -> None:
    logger = metric_logger(run="tiny", rings=rings)
    logger.log_dict({"loss": 1.0}, 1)
    logger.close()
    assert logger._run is not None
    assert seen(str(logger._run.path)).header.closed
