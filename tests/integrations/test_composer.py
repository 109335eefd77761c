"""Composer's trainer on the CPU."""

from __future__ import annotations

import copy
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyrometer import ring
from pyrometer.composer import callback

torch = pytest.importorskip("torch")
composer = pytest.importorskip("composer")
pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(autouse=True)
def _trainer_is_gone() -> Iterator[None]:
    """Collect the trainer within its test: its folders warn when they are collected, an error after the last test."""
    yield
    gc.collect()


class Model(composer.ComposerModel):  # type: ignore[misc,name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)
        self.fails_at = -1
        self.losses: list[float] = []

    def forward(self, batch: Any) -> Any:
        if len(self.losses) == self.fails_at:
            raise RuntimeError("CUDA error")
        return self.layer(batch)

    def loss(self, outputs: Any, _batch: Any) -> Any:
        loss = outputs.square().mean()
        self.losses.append(loss.item())
        return loss

    def eval_forward(self, batch: Any, _outputs: Any = None) -> Any:
        return self.layer(batch)

    def get_metrics(self, is_train: bool = False) -> dict[str, Any]:
        return {}

    def update_metric(self, *_: Any) -> None:
        """Have none."""


def data(rows: int) -> Any:
    loader = torch.utils.data.DataLoader(torch.randn(rows, 8), batch_size=4)
    return composer.DataSpec(loader, get_num_tokens_in_batch=lambda batch: 8 * len(batch))


def fit(folder: Path, model: Any, **more: Any) -> Any:
    trainer = composer.Trainer(
        model=model, train_dataloader=data(32), max_duration="2ep",
        optimizers=torch.optim.SGD(model.parameters(), 0.01),
        device="cpu", device_train_microbatch_size=2, save_folder=str(folder), save_interval="5ba", run_name="tiny",
        progress_bar=False, callbacks=[callback(flops_per_token=100.0)], **more,
    )  # fmt: skip
    trainer.fit()
    return trainer


def test_batches_of_micro_batches_evaluations_and_checkpoints(tmp_path: Path, seen: Any) -> None:
    model = Model()
    fit(tmp_path, model, eval_dataloader=data(8), eval_interval="4ba")
    found = seen()
    assert found.meta.run == "tiny"
    assert found.header.count == 16
    assert found.header.closed
    both = [sum(model.losses[at : at + 2]) / 2 for at in range(0, 32, 2)]
    assert [record.loss for record in found.records] == pytest.approx(both, rel=1e-5)
    assert {record.tokens for record in found.records} == {32}
    assert all(found.parts[part] > 0 for part in ("data", "forward", "backward", "eval", "checkpoint"))
    assert [n for n, r in enumerate(found.records, 1) if r.flags & ring.TAG_BITS["eval"]] == [5, 9, 13]
    assert [n for n, r in enumerate(found.records, 1) if r.flags & ring.TAG_BITS["checkpoint"]] == [6, 11, 16]


def test_an_exception_is_no_good_end(tmp_path: Path, seen: Any) -> None:
    model = Model()
    model.fails_at = 6
    with pytest.raises(RuntimeError, match="CUDA error"):
        fit(tmp_path, model)
    found = seen()
    assert found.header.count == 3
    assert not found.header.closed


def test_the_callback_can_be_copied_as_spawn_and_ray_do() -> None:
    assert copy.deepcopy(callback(run="r")).settings == {"run": "r"}
