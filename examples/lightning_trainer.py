"""Lightning's Trainer: report its steps with a callback.

python examples/lightning_trainer.py
"""

from __future__ import annotations

import tempfile

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from pyrometer.lightning import callback

BATCH_SIZE, WIDTH = 32, 16


class Regression(lightning.LightningModule):
    """Learns the sum of its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))

    def training_step(self, batch: tuple[torch.Tensor], _index: int) -> torch.Tensor:
        """Return the loss, which the callback records."""
        (inputs,) = batch
        return nn.functional.mse_loss(self.network(inputs).squeeze(1), inputs.sum(dim=1))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer, whose steps the callback reports."""
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def train(folder: str) -> None:
    """Train for two epochs of 20 steps."""
    model = Regression()
    parameters = sum(parameter.numel() for parameter in model.parameters())
    report = callback(run="example-lightning", tokens_per_step=BATCH_SIZE, flops_per_token=6.0 * parameters)
    trainer = lightning.Trainer(
        max_epochs=2,
        accelerator="cpu",
        callbacks=[report],
        default_root_dir=folder,
        logger=False,
        enable_checkpointing=False,
    )
    trainer.fit(model, DataLoader(TensorDataset(torch.randn(20 * BATCH_SIZE, WIDTH)), batch_size=BATCH_SIZE))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as root:
        train(root)
