"""The benchmark of one Prometheus at several sizes, with few nodes: all figures, and shards say what groups say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NODES = 36  # three racks


@pytest.mark.e2e
@pytest.mark.timeout(900)
def test_a_small_cluster_has_all_figures_and_equal_shards(tmp_path: Path) -> None:
    into = tmp_path / "figures.json"
    command = [sys.executable, str(ROOT / "benchmarks/bench_scale.py"), f"--sizes={NODES}"]
    flags = ["--interval=10", "--settled=70", "--minutes=0.2", f"--into={into}"]
    done = subprocess.run([*command, *flags], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (row,) = map(json.loads, into.read_text().splitlines())
    assert row["series"] > 3000 * NODES
    assert row["samples/s"] > 250 * NODES
    assert len(row["boards"]) > 10
    assert {each["label"] for each in row["shards"]} == {"node", "run"}
    assert sum(each["values"] for each in row["shards"]) > 50 * NODES
    assert "values compared, 0 differ" in done.stdout
