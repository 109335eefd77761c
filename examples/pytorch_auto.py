"""An existing PyTorch loop: report its steps with one line before training, and no change to the loop.

python examples/pytorch_auto.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from torch import nn

import pyrometer

STEPS, BATCH_SIZE, WIDTH = 60, 32, 16


def train(checkpoint: Path) -> None:
    """Train a small network, with an evaluation and a checkpoint every 20 steps."""
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))
    parameters = sum(parameter.numel() for parameter in model.parameters())

    # The line: a step is from one optimizer.step() to the next. Evaluations and checkpoints are detected.
    pyrometer.auto("example-pytorch", tokens_per_step=BATCH_SIZE, flops_per_token=6.0 * parameters)

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(1, STEPS + 1):
        inputs = torch.randn(BATCH_SIZE, WIDTH)
        loss = nn.functional.mse_loss(model(inputs).squeeze(1), inputs.sum(dim=1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 20 == 0:
            evaluate(model)
            torch.save(model.state_dict(), checkpoint)
            print(f"step {step}: loss {loss.item():.4f}")


def evaluate(model: nn.Module) -> None:
    """Run the model on other inputs, without training it."""
    model.eval()
    with torch.no_grad():
        model(torch.randn(BATCH_SIZE, WIDTH))
    model.train()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        train(Path(folder) / "model.pt")
