"""Waits of real jobs of four ranks, of which nobody named one: the slow rank waits least, whatever the parallelism."""

from __future__ import annotations

import importlib.util
import statistics
import tempfile
import time
from pathlib import Path

import pytest

from pyrometer import ring
from pyrometer_exporters.node.train.rings import RingFile
from pyrometer_simulator.torch_jobs.jobs import launched
from pyrometer_simulator.torch_jobs.spec import JobSpec

pytest.importorskip("torch")
pytestmark = [pytest.mark.integrations, pytest.mark.timeout(300)]

SLOW_RANK, FIRST_STEPS, STEPS, STEP_SECONDS = 2, 2, 12, 0.6
WAIT = ring.PARTS.index("wait")
KINDS = ("ddp", "allreduce", "fsdp", "tensor", "deepspeed", "torchtitan")


@pytest.mark.parametrize("kind", KINDS)
def test_the_slow_rank_waits_least(kind: str) -> None:
    if kind in ("deepspeed", "torchtitan") and importlib.util.find_spec(kind) is None:
        pytest.skip(f"{kind} is not installed")
    spec = JobSpec(f"waits-{kind}", kind, 1, step_seconds=STEP_SECONDS, slow_rank=SLOW_RANK, slowdown=1.5)
    with tempfile.TemporaryDirectory() as folder, launched([spec], Path(folder)):
        waited = _waited(Path(folder), spec.ranks)
        log = (Path(folder) / f"{spec.run}.0.log").read_text()
    assert set(waited) == set(range(spec.ranks)), log
    others = [seconds for rank, seconds in waited.items() if rank != SLOW_RANK]
    assert statistics.median(others) > 0.6 * 0.5 * STEP_SECONDS, "most of what the slow rank takes longer"
    assert waited[SLOW_RANK] < 0.3 * min(others)


def _waited(folder: Path, ranks: int) -> dict[int, float]:
    """Return the mean wait in a step by rank, once all have made enough, else of those that have after two minutes.

    The first steps are left out: in them, the rank that starts first waits for the others.
    """
    end = time.monotonic() + 120
    begun: dict[int, tuple[int, int]] = {}
    found: dict[int, float] = {}
    while time.monotonic() < end and len(found) < ranks:
        time.sleep(0.5)
        for path in folder.glob(f"*/rings/*{ring.SUFFIX}"):
            file = RingFile(str(path))
            rank, header = int(file.meta.rank), file.header()
            file.close()
            if header.count < FIRST_STEPS:
                continue
            count, waited = begun.setdefault(rank, (header.count, header.part_totals[WAIT]))
            if header.count >= count + STEPS:
                found[rank] = (header.part_totals[WAIT] - waited) / 1e9 / (header.count - count)
    return found
