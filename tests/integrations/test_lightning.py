"""Lightning's Trainer on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pyrometer import ring
from pyrometer.lightning import callback

torch = pytest.importorskip("torch")
L = pytest.importorskip("lightning.pytorch")
pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("ignore")]


class Module(L.LightningModule):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)
        self.losses: list[float] = []

    def training_step(self, batch: Any, _index: int) -> Any:
        loss = self.layer(batch).square().mean()
        self.losses.append(loss.item())
        return loss

    def validation_step(self, batch: Any, _index: int) -> None:
        self.layer(batch)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.01)


def fit(folder: Path, module: Any, **more: Any) -> Any:
    loader = torch.utils.data.DataLoader(torch.randn(64, 8), batch_size=4)
    trainer = L.Trainer(
        accelerator="cpu", devices=1, logger=False, enable_progress_bar=False, enable_model_summary=False,
        default_root_dir=str(folder), callbacks=[callback(run="tiny", tokens_per_step=32), *more.pop("callbacks", [])],
        **more,
    )  # fmt: skip
    trainer.fit(module, loader, torch.utils.data.DataLoader(torch.randn(8, 8)))
    return trainer


def test_steps_of_accumulated_batches_validations_and_checkpoints(tmp_path: Path, seen: Any) -> None:
    module = Module()
    saves = L.callbacks.ModelCheckpoint(every_n_train_steps=5, save_top_k=-1)
    trainer = fit(
        tmp_path, module, max_epochs=2, accumulate_grad_batches=2, val_check_interval=8, callbacks=[saves]
    )  # fmt: skip
    found = seen()
    assert found.header.count == trainer.global_step == 16
    assert [record.loss for record in found.records] == pytest.approx(module.losses[1::2], rel=1e-5)
    assert found.header.closed
    assert all(found.parts[part] > 0 for part in ("data", "backward", "optimizer", "eval"))
    # A validation after each 4 steps, and one before training that doesn't count.
    assert [n for n, r in enumerate(found.records, 1) if r.flags & ring.TAG_BITS["eval"]] == [5, 9, 13]
    assert {n for n, r in enumerate(found.records, 1) if r.flags & ring.TAG_BITS["checkpoint"]} >= {6, 11, 16}


def test_an_exception_is_no_good_end(tmp_path: Path, seen: Any) -> None:
    class Failing(Module):
        def training_step(self, batch: Any, index: int) -> Any:
            if index == 3:
                raise RuntimeError("CUDA error")
            return super().training_step(batch, index)

    with pytest.raises(RuntimeError, match="CUDA error"):
        fit(tmp_path, Failing(), max_epochs=1, enable_checkpointing=False)
    found = seen()
    assert found.header.count == 3
    assert not found.header.closed


@pytest.mark.parametrize(("precision", "dtype"), [("bf16-mixed", "bf16"), ("32-true", "fp32"), ("64-true", "fp64")])
def test_the_dtype_is_the_trainers_precision(tmp_path: Path, seen: Any, precision: str, dtype: str) -> None:
    class Cast(Module):
        def training_step(self, batch: Any, index: int) -> Any:
            return super().training_step(batch.to(self.layer.weight.dtype), index)

    fit(
        tmp_path, Cast(), max_steps=2, precision=precision, enable_checkpointing=False, limit_val_batches=0,
        num_sanity_val_steps=0,
    )  # fmt: skip
    assert seen().meta.texts["dtype"] == dtype
