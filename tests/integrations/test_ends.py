"""A rank of a real job under torchrun is killed: what the ends of all ranks say, each within moments of the others."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pyrometer import ring
from pyrometer_exporters.framework.collector import Context
from pyrometer_exporters.framework.metrics import Sample
from pyrometer_exporters.node.train.collector import TrainCollector
from pyrometer_exporters.node.train.rings import RingFile
from pyrometer_kit.clock import SystemClock

pytest.importorskip("torch")
pytestmark = [pytest.mark.integrations, pytest.mark.timeout(300)]

RANKS, KILLED, STEPS = 4, 2, 12
SCRIPT = """
import time, torch, pyrometer
from torch.nn.parallel import DistributedDataParallel
torch.distributed.init_process_group("gloo")
pyrometer.auto("killed", tokens_per_step=4)
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
while True:
    loss = model(torch.randn(2, 8)).square().mean()
    time.sleep(0.05 * (1 + torch.distributed.get_rank()))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize("part", ["between_ticks", "wait"])
def test_the_killed_rank_is_the_one_whose_end_needs_no_other(tmp_path: Path, part: str) -> None:
    """As ``rank:pyrometer_train_rank_end:own`` of train_died.rules.yaml has it."""
    (tmp_path / "train.py").write_text(SCRIPT)
    rings = tmp_path / "rings"
    rings.mkdir()
    context = Context(argparse.Namespace(), SystemClock(), Path("/sys"), Path("/proc"), rings, None)
    collector = TrainCollector(context)
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}",
        str(tmp_path / "train.py"),
    ]  # fmt: skip
    env = os.environ | {"PYROMETER_RINGS": str(rings), "OMP_NUM_THREADS": "1"}
    with (tmp_path / "log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log, env=env) as job:
        try:
            until(lambda: sum(steps(path) >= STEPS for path in rings.glob(f"*{ring.SUFFIX}")) == RANKS)
            # Rank 0 waits in most of its steps for the slower ones, and rank 3 hardly ever.
            killed = 0 if part == "wait" else KILLED
            kill_in(rings, killed, part)
            until(lambda: len(exits(collector)) == RANKS)
        finally:
            job.terminate()
        assert job.wait(30) != 0
    ends = exits(collector)
    collector.close()
    assert len(ends) == RANKS, (tmp_path / "log").read_text()
    assert {rank for rank, end in ends.items() if is_own(*end)} == {str(killed)}, ends


def is_own(how: str, part: str) -> bool:
    caused = part == "wait" and how not in ("SIGKILL", "SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "signal or os._exit")
    return not caused and how not in ("SIGTERM", "SIGINT", "SIGHUP")


def steps(path: Path) -> int:
    file = RingFile(str(path))
    try:
        return file.header().count
    finally:
        file.close()


def kill_in(rings: Path, rank: int, part: str) -> None:
    number = 1 + ring.PARTS.index(part) if part in ring.PARTS else 0
    for path in rings.glob(f"*{ring.SUFFIX}"):
        file = RingFile(str(path))
        if file.meta.rank == str(rank):
            until(lambda file=file: file.header().part == number, pause=0.001)  # type: ignore[misc]
            os.kill(file.pid, signal.SIGKILL)
        file.close()


def exits(collector: TrainCollector) -> dict[str, tuple[str, str]]:
    samples = [each for each in collector.collect(time.monotonic() + 5) if isinstance(each, Sample)]
    name = "pyrometer_train_rank_exit_info"
    return {s.labels[2]: (s.labels[3], s.labels[4]) for s in samples if s.family.name == name}


def until(done: Callable[[], bool], seconds: float = 120.0, pause: float = 0.2) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end and not done():
        time.sleep(pause)
