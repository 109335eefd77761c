"""The demo's network truly learns, and its FLOPs are those of its matrix products."""

from __future__ import annotations

import numpy as np
import pytest

from pyrometer_simulator.demo import model
from pyrometer_simulator.demo.model import Model, rows_for


def test_the_loss_falls() -> None:
    network = Model.fresh()
    losses = []
    for _ in range(60):
        inputs, wanted = network.batch(128)
        hidden, outputs = network.forward(inputs)
        losses.append(float(np.mean((outputs - wanted) ** 2)))
        network.update(network.backward(inputs, hidden, outputs - wanted))
    assert np.isfinite(losses).all()
    assert np.mean(losses[-5:]) < 0.75 * np.mean(losses[:5])


def test_rows_are_chosen_by_measuring(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(model.time, "perf_counter", lambda: now[0])

    def step(rows: int) -> None:
        now[0] += rows * 1e-5

    assert rows_for(0.1, step) == pytest.approx(10_000, rel=0.01)
