"""Old batches in blocks, which promtool makes and reads."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pyrometer_simulator.pair.history import GAP, History
from pyrometer_simulator.stack import Stack


@pytest.mark.parametrize("gap", [False, True])
def test_a_gap_is_in_the_blocks_and_nothing_else_is(stack: Stack, tmp_path: Path, gap: bool) -> None:
    history = History(1_700_000_000.0, 10.0)
    history.write(stack.promtool, tmp_path / "data", gap)
    (tmp_path / "data/wal").mkdir()  # promtool wants a Prometheus' whole folder
    dumped = subprocess.run(
        [str(stack.promtool), "tsdb", "dump", str(tmp_path / "data")], capture_output=True, text=True, check=True
    )
    numbers = sorted(int(line.split()[-2]) for line in dumped.stdout.splitlines())
    kept = [n for n in range(history.count) if not (gap and GAP[0] <= n // 2 * 10 < GAP[1])]
    assert numbers == kept
