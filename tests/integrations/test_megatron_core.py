"""Megatron-core's own model, data parallelism, schedule and optimizer, told that the CPU is its GPU.

It makes its buffers on ``cuda`` without asking, so that is the boundary that is replaced. The package has no trainer:
``megatron.training`` is in Megatron-LM's repository only, and is no package; its ``train_step`` has the shape of ours.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import pyrometer
from pyrometer import ring

torch = pytest.importorskip("torch")
pytest.importorskip("megatron.core")
pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("ignore")]

LENGTH, BATCH, VOCABULARY = 16, 4, 64


def on_the_cpu() -> Any:
    """A mode in which whatever is to be made on a device is made on the CPU."""

    class OnTheCpu(torch.overrides.TorchFunctionMode):  # type: ignore[misc,name-defined]
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = dict(kwargs or {})
            if kwargs.get("device") is not None:
                kwargs["device"] = "cpu"
            return args[0] if func is torch.Tensor.cuda else func(*args, **kwargs)

    return OnTheCpu()


@pytest.fixture
def one_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    from megatron.core import parallel_state
    from megatron.core.tensor_parallel import get_cuda_rng_tracker

    monkeypatch.setattr(torch.cuda, "current_device", lambda: "cpu")
    # The states of the GPU's random numbers, of which dropout of 0 takes none.
    monkeypatch.setattr(type(get_cuda_rng_tracker()), "fork", lambda *_: contextlib.nullcontext())
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    with on_the_cpu():
        parallel_state.initialize_model_parallel(1, 1)
        yield
        parallel_state.destroy_model_parallel()
    torch.distributed.destroy_process_group()


@pytest.fixture
def trainer(one_rank: None) -> Any:
    """A module with ``train_step``, as megatron.training.training: a step of the optimizer over two micro-batches."""
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.transformer.transformer_config import TransformerConfig

    config = TransformerConfig(
        num_layers=2, hidden_size=16, num_attention_heads=2, use_cpu_initialization=True, hidden_dropout=0.0,
        attention_dropout=0.0, pipeline_dtype=torch.float32,
    )  # fmt: skip
    gpt = GPTModel(config, get_gpt_layer_local_spec(), vocab_size=VOCABULARY, max_sequence_length=LENGTH)
    model = DistributedDataParallel(config, DistributedDataParallelConfig(), gpt)
    optimizer = get_megatron_optimizer(OptimizerConfig(optimizer="adam", lr=1e-3, clip_grad=0.0), [model])
    made = types.ModuleType("training")
    made.train_step = step_of(model, optimizer)  # type: ignore[attr-defined]
    made.model = model  # type: ignore[attr-defined]
    return made


def step_of(model: Any, optimizer: Any) -> Callable[[], tuple[dict[str, Any], Any]]:
    from megatron.core.pipeline_parallel.schedules import get_forward_backward_func

    causal = torch.ones(BATCH, 1, LENGTH, LENGTH, dtype=torch.bool).triu(1)
    positions = torch.arange(LENGTH).expand(BATCH, -1)

    def forward_step(_data: Any, chunk: Any) -> Any:
        tokens = torch.randint(0, VOCABULARY, (BATCH, LENGTH))
        return chunk(tokens, positions, causal, labels=tokens), lambda out: (out.mean(), {"lm loss": out.mean()})

    def train_step() -> tuple[dict[str, Any], Any]:
        model.zero_grad_buffer()
        optimizer.zero_grad()
        losses = get_forward_backward_func()(
            forward_step_func=forward_step, data_iterator=None, model=model, num_microbatches=2, seq_length=LENGTH,
            micro_batch_size=BATCH, forward_only=False,
        )  # fmt: skip
        _, grad_norm, _ = optimizer.step()
        return {"lm loss": torch.stack([found["lm loss"] for found in losses]).mean().detach()}, grad_norm

    return train_step


def test_watching_its_train_step(trainer: Any, seen: Any) -> None:
    pyrometer.watch(
        trainer, "train_step", run="mcore", tokens_per_step=2 * BATCH * LENGTH, loss=lambda found: found[0]["lm loss"]
    )
    losses = [float(trainer.train_step()[0]["lm loss"]) for _ in range(4)]
    found = seen()
    assert [record.loss for record in found.records] == pytest.approx(losses)
    assert losses[0] == pytest.approx(torch.log(torch.tensor(float(VOCABULARY))).item(), rel=0.1)


def test_auto_hears_its_optimizer_and_its_evaluation(trainer: Any, seen: Any) -> None:
    pyrometer.auto("mcore", tokens_per_step=2 * BATCH * LENGTH)
    for step in range(5):
        trainer.train_step()
        if step == 2:
            trainer.model.eval()
            trainer.model.train()
    found = seen()
    assert found.header.count == 4
    assert [bool(record.flags & ring.TAG_BITS["eval"]) for record in found.records] == [False, False, True, False]
