"""Accelerate on the CPU: its optimizer calls PyTorch's, which ``auto`` counts."""

from __future__ import annotations

from typing import Any

import pytest

import pyrometer
from pyrometer import ring

torch = pytest.importorskip("torch")
accelerate = pytest.importorskip("accelerate")
pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("ignore")]


def test_accumulated_gradients_are_one_step_and_checkpoints_are_found(tmp_path: Any, seen: Any) -> None:
    run = pyrometer.auto("tiny", tokens_per_step=32)
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = torch.nn.Linear(8, 1)
    data = torch.utils.data.DataLoader(torch.randn(48, 8), batch_size=4)
    model, optimizer, data = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01), data)
    losses = []
    for number, batch in enumerate(data):
        with accelerator.accumulate(model):
            loss = model(batch).square().mean()
            accelerator.backward(loss)
            run.record(loss=loss)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
        if number == 7:
            accelerator.save_state(str(tmp_path))
    run.close()
    found = seen()
    assert found.header.count == 5, "six steps of the optimizer; a step lasts from one to the next"
    assert [record.loss for record in found.records] == pytest.approx(losses[3::2], rel=1e-5)
    assert any(record.flags & ring.TAG_BITS["checkpoint"] for record in found.records)
