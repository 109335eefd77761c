"""Slow, stopped, killed and stuck ranks of real PyTorch jobs, under real exporters and Prometheus with our rules.

All jobs at once, a few minutes in all; their computing is mere waiting. Ten seeds each: benchmarks/bench_stragglers.py
and bench_hangs.py.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pyrometer_simulator.demo.processes import Processes
from pyrometer_simulator.torch_jobs.jobs import Jobs, launched, running
from pyrometer_simulator.torch_jobs.monitoring import Monitoring, Named
from pyrometer_simulator.torch_jobs.spec import JobSpec

pytest.importorskip("torch")
pytest.importorskip("accelerate")
pytest.importorskip("lightning.pytorch")
pytestmark = [pytest.mark.integrations, pytest.mark.timeout(900)]

SLOW = {
    "ddp-slow": JobSpec("ddp-slow", "ddp", 1, slow_rank=3),
    "huggingface-slow": JobSpec("huggingface-slow", "huggingface", 2, slow_rank=0),
    "lightning-slow": JobSpec("lightning-slow", "lightning", 3, slow_rank=2),
}
HEALTHY = JobSpec("ddp-healthy", "ddp", 4)
STUCK = JobSpec("ddp-stuck", "ddp", 5, stuck_rank=2, stuck_at=30)
STRUCK = {
    # run: which rank gets which signal, in which part of a step
    "stopped-in-backward": (0, signal.SIGSTOP, "backward"),
    "stopped-in-wait": (3, signal.SIGSTOP, "wait"),
    "killed-in-backward": (1, signal.SIGKILL, "backward"),
    "killed-in-wait": (2, signal.SIGKILL, "wait"),
}
HUNG = {STUCK.run: 2, **{run: rank for run, (rank, number, _) in STRUCK.items() if number == signal.SIGSTOP}}
KILLED = {run: rank for run, (rank, number, _) in STRUCK.items() if number == signal.SIGKILL}
NODES = ("gpu-001", "gpu-001", "gpu-002", "gpu-002")


class Played:
    """The alerts that fired for all jobs."""

    def __init__(self, jobs: Jobs, faults: dict[str, float]) -> None:
        self.faults = faults
        self.first_seen = jobs.monitoring.first_seen

    def of(self, run: str) -> dict[Named, float]:
        """Return the alerts of a run, each with the seconds since its fault."""
        return {one: at - self.faults[run] for one, at in self.first_seen.items() if one.run == run}


@pytest.fixture(scope="module")
def played() -> Iterator[Played]:
    with contextlib.ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        (folder / "logs").mkdir()
        monitoring = Monitoring.start(folder, opened.enter_context(Processes(folder / "logs")), nodes=2)
        struck = [JobSpec(run, "ddp", seed, step_seconds=0.5) for seed, run in enumerate(STRUCK, 6)]
        specs = [*SLOW.values(), HEALTHY, STUCK, *struck]
        jobs = opened.enter_context(running(specs, monitoring))
        jobs.wait_for_steps(15)
        faults = dict(jobs.began)
        for run, (rank, number, part) in STRUCK.items():
            jobs.signal_in(run, rank, number, part)
            faults[run] = time.time()
        jobs.watch(25)  # until the stuck rank has come to its last batch
        query = f'pyrometer_train_last_step_timestamp_seconds{{run="{STUCK.run}",rank="2"}}'
        faults[STUCK.run] = monitoring.prometheus.value(query) or 0.0
        wanted = {*SLOW, *HUNG, *KILLED}
        jobs.watch(240, lambda: {one.run for one in monitoring.first_seen} >= wanted)
        yield Played(jobs, faults)


@pytest.mark.parametrize("run", SLOW)
def test_a_rank_that_is_20_percent_slower_is_named_within_3_minutes(played: Played, run: str) -> None:
    rank = SLOW[run].slow_rank
    ((named, seconds),) = played.of(run).items()
    assert (named.alertname, named.node, named.rank) == ("TrainStraggler", NODES[rank], str(rank))
    assert seconds <= 180


@pytest.mark.parametrize("run", HUNG)
def test_a_rank_that_is_stopped_or_stuck_is_named_within_90_seconds(played: Played, run: str) -> None:
    ((named, seconds),) = played.of(run).items()
    assert (named.alertname, named.node, named.rank) == ("TrainStalled", NODES[HUNG[run]], str(HUNG[run]))
    assert seconds <= 90


@pytest.mark.parametrize("run", KILLED)
def test_a_rank_that_is_killed_is_named_within_90_seconds_though_all_others_end_at_once(
    played: Played, run: str
) -> None:
    """Gloo ends the others within the same second, by an exception in the collective in which they wait."""
    ((named, seconds),) = played.of(run).items()
    assert (named.alertname, named.node, named.rank) == ("TrainRunDied", NODES[KILLED[run]], str(KILLED[run]))
    assert seconds <= 90


def test_nothing_is_said_of_a_job_of_equal_ranks(played: Played) -> None:
    assert played.of(HEALTHY.run) == {}


@pytest.mark.parametrize("rank", [0, 3])
def test_dumps_of_a_real_run_without_a_client_name_the_rank_that_is_stuck(tmp_path: Path, rank: int) -> None:
    spec = JobSpec("dumps", "ddp", 8, step_seconds=0.1, stuck_rank=rank, stuck_at=10, client=False, dumps=str(tmp_path))
    with tempfile.TemporaryDirectory() as folder, launched([spec], Path(folder)):
        assert set(_named(tmp_path)) == {f"=> the others wait for rank {rank}"}


def test_dumps_of_a_real_run_without_a_client_name_the_rank_that_is_stopped_and_wrote_none(tmp_path: Path) -> None:
    spec = JobSpec("dumps", "ddp", 9, step_seconds=0.1, client=False, dumps=str(tmp_path))
    with tempfile.TemporaryDirectory() as folder, launched([spec], Path(folder)) as pids:
        (tmp_path / "dump").touch()
        _until(lambda: len(list(tmp_path.glob("rank_*"))) == spec.ranks)
        assert _named(tmp_path, while_it_runs=15) == []
        os.kill(pids["dumps", 1], signal.SIGSTOP)
        (tmp_path / "rank_1").unlink(missing_ok=True)
        assert set(_named(tmp_path)) == {"=> the others wait for rank 1"}


def _named(dumps: Path, while_it_runs: float = 0.0) -> list[str]:
    """Ask for dumps for so many seconds of a run that goes on, or until a rank is named, and for 5 s more.

    Return every rank that was named in that time: one that is named only for a moment is a wrong one.
    """
    (dumps / "dump").touch()
    named: list[str] = []
    end = time.monotonic() + (while_it_runs or 120)
    while time.monotonic() < end:
        if (found := _said(dumps)) and not named:
            end = min(end, time.monotonic() + 5)
        named += found
        time.sleep(0.2)
    return named


def _until(met: Callable[[], bool], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < end
        time.sleep(0.1)


def _said(dumps: Path) -> list[str]:
    """Return whom the dumps name, without the collectives."""
    command = [sys.executable, "-m", "pyrometer.hang", str(dumps)]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return [re.split("[;:]", line)[0] for line in said.splitlines() if line.startswith("=>")]
