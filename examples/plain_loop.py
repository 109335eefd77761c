"""A training loop of your own: report its steps, their parts and the loss. Needs nothing but Python.

python examples/plain_loop.py
"""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path

import pyrometer

STEPS, BATCH_SIZE, LEARNING_RATE = 300, 32, 0.1
WEIGHTS = [0.5, -1.0, 2.0, 0.25]  # what the model has to learn

Batch = list[tuple[list[float], float]]


def load_batch() -> Batch:
    """Return inputs and targets of a linear function."""
    inputs = [[random.gauss(0, 1) for _ in WEIGHTS] for _ in range(BATCH_SIZE)]
    return [(x, sum(w * value for w, value in zip(WEIGHTS, x, strict=True))) for x in inputs]


def predict(model: list[float], x: list[float]) -> float:
    """Return the model's output for one sample."""
    return sum(w * value for w, value in zip(model, x, strict=True))


def train(checkpoint: Path) -> None:
    """Train the model, and save it every 100 steps."""
    model = [0.0] * len(WEIGHTS)
    # A sample is a token here: 2 FLOPs per parameter forward, 4 backward.
    flops_per_token = 6.0 * len(model)

    with pyrometer.start("example-plain", tokens_per_step=BATCH_SIZE, flops_per_token=flops_per_token) as run:
        for step in range(1, STEPS + 1):
            with run.step():
                with run.part("data"):
                    batch = load_batch()
                with run.part("forward"):
                    errors = [predict(model, x) - target for x, target in batch]
                    loss = sum(error * error for error in errors) / BATCH_SIZE
                with run.part("backward"):
                    gradient = [
                        sum(2 * error * x[i] for error, (x, _) in zip(errors, batch, strict=True)) / BATCH_SIZE
                        for i in range(len(model))
                    ]
                with run.part("optimizer"):
                    model = [w - LEARNING_RATE * slope for w, slope in zip(model, gradient, strict=True)]
                run.record(loss=loss)
            if step % 100 == 0:
                with run.part("checkpoint"):  # so that its time is not taken for a slow step
                    checkpoint.write_text(json.dumps(model), encoding="utf-8")
                print(f"step {step}: loss {loss:.6f}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        train(Path(folder) / "checkpoint.json")
