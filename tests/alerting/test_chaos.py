"""Killed at random points of the outbox, with a Slack that misbehaves: nothing lost, nothing twice.

`benchmarks/bench_chaos.py` does the same a thousand times.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from alerting_chaos import Chaos
from alerting_chaos_replicas import Replicas

from pyrometer_simulator.postgres import Pair, missing
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


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_two_on_postgresql_killed_paused_and_failed_over_lose_and_repeat_nothing(
    tmp_path: Path, slack: FakeSlack
) -> None:
    with Pair(standby=True) as pair:
        chaos = Replicas(tmp_path, slack, 1, pair)
        try:
            chaos.play(kills=4)
            for kind in ("pause", "primary"):
                chaos._start_all()
                chaos.deliver()
                chaos._fault(kind)
            verdict = chaos.settle()
        finally:
            chaos.close()
    assert (verdict.lost, verdict.wrong, verdict.duplicates) == ([], [], [])
