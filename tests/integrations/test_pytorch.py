"""PyTorch itself, on the CPU: its optimizer hook, torchrun with two ranks, and the MFU by hand."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

import pyrometer
from pyrometer import ring
from pyrometer_exporters.node.train.tracker import Rank, to_point

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("ignore")]


def test_auto_counts_the_steps_of_a_loop_that_knows_nothing_of_it(seen: Any) -> None:
    pyrometer.auto("plain", tokens_per_step=32, flops_per_token=6.0 * 8 * 8)
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(11):
        for _ in range(2):  # gradients of two micro-batches
            model(torch.randn(16, 8)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert seen().header.count == 10


def test_auto_notices_evaluations_and_checkpoints(tmp_path: Path, seen: Any) -> None:
    run = pyrometer.auto("plain")
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8))
    optimizer = torch.optim.AdamW(model.parameters())
    parts = []

    def part() -> str:
        number = seen().header.part
        return ring.PARTS[number - 1] if number else ""

    class Curious:
        def __reduce__(self) -> Any:
            parts.append(part())
            return int, (0,)

    for step in range(8):
        model(torch.randn(16, 8)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == 3:
            model.eval()
            parts.append(part())
            model.train()
            parts.append(part())
        if step == 5:
            torch.save({"model": model.state_dict(), "at": Curious()}, tmp_path / "checkpoint.pt")
    assert parts == ["eval", "", "checkpoint"]
    assert torch.load(tmp_path / "checkpoint.pt", weights_only=False)["at"] == 0
    found = seen()
    flags = [record.flags & (ring.TAG_BITS["eval"] | ring.TAG_BITS["checkpoint"]) for record in found.records]
    assert flags == [0, 0, 0, ring.TAG_BITS["eval"], 0, ring.TAG_BITS["checkpoint"], 0]
    assert found.header.ticking == ring.NAMED
    assert run.disabled is None


def test_auto_before_torch_is_imported(rings: Path, seen: Any) -> None:
    script = """
        import sys, pyrometer
        run = pyrometer.auto("early")
        assert "torch" not in sys.modules
        import torch
        weight = torch.nn.Parameter(torch.ones(3))
        for optimizer in [torch.optim.SGD([weight], lr=0.1)] * 4:
            weight.sum().backward()
            optimizer.step()
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, timeout=120)
    found = seen()
    assert found.header.count == 3
    assert found.header.closed


RANK = """
    import os, sys, time
    import torch, torch.distributed as dist
    import pyrometer

    # A store of its own for each attempt: gloo would take the addresses of the ranks that are gone.
    rank, restarts = int(os.environ["RANK"]), os.environ["TORCHELASTIC_RESTART_COUNT"]
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}.{restarts}", rank=rank, world_size=2)
    run = pyrometer.start("ddp", tokens_per_step=64)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(20):
        with run.step():
            if rank == 1:
                time.sleep(0.02)  # the straggler
            with run.part("wait"):
                dist.barrier()
            loss = model(torch.randn(32, 8)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            run.record(loss=loss)
        if step == 9 and restarts == "0":
            sys.exit(1)
    run.close()
"""


def test_torchrun_with_a_straggler_and_a_restart(tmp_path: Path, seen: Any) -> None:
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(RANK))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    arguments = [str(script), str(tmp_path / "store")]
    subprocess.run([*command, *arguments], check=True, timeout=110, env=environment, capture_output=True)
    for rank in (0, 1):
        before, after = seen(rank, attempt=0), seen(rank, attempt=1)
        assert before.header.count == 10
        assert not before.header.closed, "sys.exit(1) is no good end"
        assert after.header.count == 20
        assert after.header.closed
        assert after.meta.world_size == 2
    fast, slow = seen(0, 1), seen(1, 1)
    assert fast.parts["wait"] > slow.parts["wait"] + 0.2
    assert all(record.loss > 0 for record in fast.records)


def test_the_mfu_of_a_real_run_is_that_of_a_hand_calculation(seen: Any) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    batch, width = 256, 512
    model = torch.nn.Sequential(*(torch.nn.Linear(width, width, bias=False) for _ in range(4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs = torch.randn(batch, width, requires_grad=True)

    def step() -> None:
        model(inputs).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    # 2 x parameters x rows forward, twice that backward; as torch counts it.
    per_row = 6.0 * 4 * width * width
    with FlopCounterMode(display=False) as counter:
        step()
    assert counter.get_total_flops() == pytest.approx(per_row * batch)

    peak = 1e12
    run = pyrometer.start("mfu", flops_per_token=per_row, tokens_per_step=batch, peak_flops=peak, warmup_steps=0)
    by_hand = []
    for _ in range(20):
        begin = time.perf_counter()
        with run.step():
            step()
        by_hand.append(per_row * batch / (time.perf_counter() - begin) / peak)
    found = seen()
    rank = Rank(found.file, found.header, 0, peak)
    measured = [to_point(record, rank, 0).mfu for record in found.records]
    # The watch by hand is around ours: where the machine stood still between the two, it alone is the slower one.
    beyond = [ours / hand - 1 for ours, hand in zip(measured, by_hand, strict=True)]
    assert min(beyond) > -1e-6
    assert sorted(beyond)[17] < 0.02  # of twenty
    total = found.header.count * found.meta.flops_per_step / (found.header.step_total / 1e9) / peak
    assert total == pytest.approx(20 / sum(1 / mfu for mfu in by_hand), rel=0.02)
