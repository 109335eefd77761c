"""The plain loop in ``examples/``, run as its reader would run it; tests/integrations has those that need PyTorch."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyrometer import ring
from pyrometer_exporters.node.train.rings import RingFile

EXAMPLE = Path(__file__).parents[2] / "examples" / "plain_loop.py"


@pytest.fixture
def ring_file() -> Iterator[RingFile]:
    """The ring that the example leaves behind."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        environment = os.environ | {"PYROMETER_RINGS": folder}
        command = [sys.executable, "-W", "error", str(EXAMPLE)]
        subprocess.run(command, check=True, capture_output=True, timeout=60, env=environment)
        (path,) = Path(folder).iterdir()
        file = RingFile(str(path))
        yield file
        file.close()


def test_it_reports_every_step_its_parts_and_a_falling_loss(ring_file: RingFile) -> None:
    header = ring_file.header()
    records = list(ring_file.records(0, header.count))
    assert (header.count, header.closed) == (300, True)
    assert (records[0].loss or 0) > 100 * (records[-1].loss or 0)
    parts = dict(zip(ring.PARTS, header.part_totals, strict=True))
    assert all(parts[part] > 0 for part in ("data", "forward", "backward", "optimizer", "checkpoint"))
    checkpoints = [record.sequence for record in records if record.flags & ring.TAG_BITS["checkpoint"]]
    assert checkpoints == [100, 200], "tagged steps follow a checkpoint, and none follows the last"
