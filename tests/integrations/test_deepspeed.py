"""DeepSpeed's own engine on the CPU: steps of accumulated gradients, its evaluation and its checkpoint."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

import pyrometer
from pyrometer import ring
from pyrometer_simulator.ports import free_port

torch = pytest.importorskip("torch")
pytest.importorskip("deepspeed")
pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("ignore")]

ACCUMULATED, MICRO_BATCH = 4, 2


def batch() -> Any:
    return torch.randn(MICRO_BATCH, 8)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, stage: int) -> Any:
    """As the job's script makes it, one rank of one."""
    import deepspeed

    deepspeed_comm = importlib.import_module("deepspeed.comm.torch")  # `as` would give what it has imported as torch

    # Collectives through shared memory, compiled for a minute: for one rank there are none.
    monkeypatch.setattr(deepspeed_comm, "build_shm_op", lambda: None)
    port = free_port()
    launcher = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    for name, value in launcher.items():
        monkeypatch.setenv(name, value)

    class Model(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(8, 1)

        def forward(self, inputs: Any) -> Any:
            return self.layer(inputs).square().mean()

    model = Model()
    config = {
        "train_micro_batch_size_per_gpu": MICRO_BATCH,
        "gradient_accumulation_steps": ACCUMULATED,
        "optimizer": {"type": "AdamW", "params": {"lr": 0.001, "torch_adam": True}},
        "zero_optimization": {"stage": stage},
    }
    made, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    yield made
    deepspeed.comm.destroy_process_group()


def train(engine: Any, steps: int) -> None:
    for _ in range(steps * ACCUMULATED):
        engine.backward(engine(batch()))
        engine.step()


@pytest.mark.parametrize("stage", [0, 1])
def test_the_documented_line_counts_the_engines_own_steps(engine: Any, stage: int, tmp_path: Path, seen: Any) -> None:
    run = pyrometer.watch(engine, "step", counter="global_steps", run="ds", tokens_per_step=MICRO_BATCH * ACCUMULATED)
    train(engine, 4)
    engine.eval()
    engine(batch())
    engine.train()
    train(engine, 2)
    engine.save_checkpoint(str(tmp_path))
    train(engine, 2)
    found = seen()
    assert engine.global_steps == 8
    assert found.header.count == run.steps_finished() == 7, "the first is not seen to begin"
    eval_tag, checkpoint_tag = ring.TAG_BITS["eval"], ring.TAG_BITS["checkpoint"]
    assert [n for n, r in enumerate(found.records, 2) if r.flags & eval_tag] == [5]
    assert [n for n, r in enumerate(found.records, 2) if r.flags & checkpoint_tag] == [7]
    assert found.header.ticking == ring.NAMED
    assert found.parts["checkpoint"] > 0


class Pipeline:
    """As much as is documented of the pipeline engine, which needs GPUs: a call of train_batch is a step."""

    def train_batch(self, _data_iter: Any = None) -> Any:
        return torch.tensor(2.5)


def test_the_pipeline_engines_line(seen: Any) -> None:
    engine = Pipeline()
    pyrometer.watch(engine, "train_batch", run="ds", tokens_per_step=8, loss=lambda found: found)
    for _ in range(3):
        engine.train_batch()
    assert [record.loss for record in seen().records] == [2.5] * 3
