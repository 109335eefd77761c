"""Killed at random points of the outbox, with a Slack that misbehaves: nothing lost, nothing twice.

`benchmarks/bench_chaos.py` does the same a thousand times.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from alerting_chaos import Chaos

from pyrometer_simulator.slack import FakeSlack


@pytest.mark.parametrize("seed", [1])
def test_killed_thirty_times_nothing_is_lost_or_said_twice(tmp_path: Path, slack: FakeSlack, seed: int) -> None:
    chaos = Chaos(tmp_path, slack, seed)
    try:
        chaos.play(kills=30)
        verdict = chaos.settle()
    finally:
        chaos.close()
    assert (verdict.lost, verdict.wrong, verdict.duplicates) == ([], [], [])
    assert verdict.incidents > 5
