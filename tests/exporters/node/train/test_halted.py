"""Ranks whose processes the kernel does not let run."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pyrometer_exporters.framework.collector import Context
from pyrometer_exporters.framework.exposition import Renderer
from pyrometer_exporters.framework.metrics import Sample
from pyrometer_exporters.node.train.collector import TrainCollector
from pyrometer_exporters.node.train.halted import HALTED
from pyrometer_exporters.node.train.rank_exit import lock_holder

# The fields of /proc/PID/stat from the sixth to the start time.
REST_OF_STAT = f" {'0 ' * 16}123456 0\n"
HOLDS_A_LOCK = "import fcntl, sys; f = open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_EX); print(flush=True); input()"


@pytest.fixture
def rank(rings: Callable[..., Any], clock: Any) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock of a ring whose last step has just ended."""
    made = rings("r0", rank=3)
    made.step(clock.now - 1, clock.now)
    os.close(made.fd)
    made.fd = -1
    command = [sys.executable, "-c", HOLDS_A_LOCK, str(made.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def halted(collector: TrainCollector) -> list[tuple[str, ...]]:
    samples = [each for each in collector.collect(time.monotonic() + 5) if isinstance(each, Sample)]
    return [each.labels[3:] for each in samples if each.family.name == "pyrometer_train_rank_halted_info"]


def test_a_stopped_rank_is_served_once_it_has_not_moved_for_a_while(
    context: Context, clock: Any, rank: subprocess.Popen[str], golden: Callable[[str, str], None]
) -> None:
    collector = TrainCollector(context)
    try:
        rank.send_signal(signal.SIGSTOP)
        _until_stopped(rank.pid)
        assert halted(collector) == []
        clock.advance(9)
        assert halted(collector) == [], "a rank that moves is not looked at"
        clock.advance(2)
        assert halted(collector) == [], "it may be a moment"
        clock.advance(10)
        assert halted(collector) == [("3", "stopped")]
        served = [item for item in collector.collect(time.monotonic() + 5) if isinstance(item, Sample)]
        golden(Renderer().text(item for item in served if item.family is HALTED).decode(), "golden/halted.txt")
        rank.send_signal(signal.SIGCONT)
        _until_it_runs(rank.pid)
        assert halted(collector) == []
    finally:
        collector.close()


def test_a_rank_that_waits_is_not_halted(context: Context, clock: Any, rank: subprocess.Popen[str]) -> None:
    collector = TrainCollector(context)
    try:
        for _ in range(4):
            clock.advance(10)
            assert halted(collector) == []
    finally:
        collector.close()


@pytest.mark.parametrize("letter", ["D", "t"])
def test_a_system_call_that_does_not_return_and_a_debugger(
    context: Context, clock: Any, tmp_path: Path, rank: subprocess.Popen[str], letter: str
) -> None:
    procfs, state = tmp_path / "proc", {"D": "uninterruptible", "t": "traced"}[letter]
    (procfs / str(rank.pid)).mkdir(parents=True)
    (procfs / "locks").write_text(Path("/proc/locks").read_text())
    stat = procfs / str(rank.pid) / "stat"
    stat.write_text(f"{rank.pid} (a (strange) name) {letter} 1 1{REST_OF_STAT}")
    collector = TrainCollector(dataclasses.replace(context, procfs=procfs))
    try:
        halted(collector)
        clock.advance(11)
        halted(collector)
        clock.advance(5)
        stat.write_text(f"{rank.pid} (python) S 1 1{REST_OF_STAT}")
        halted(collector)
        clock.advance(5)
        stat.write_text(f"{rank.pid} (python) {letter} 1 1{REST_OF_STAT}")
        assert halted(collector) == [], "for moments, as anybody who reads a file"
        clock.advance(10)
        assert halted(collector) == [("3", state)]
        stat.unlink()
        assert halted(collector) == []
    finally:
        collector.close()


def _until_stopped(pid: int) -> None:
    """Wait until the signal has had its effect, which on a busy machine is later than its sending."""
    while _state(pid) != "T":
        time.sleep(0.001)


def _until_it_runs(pid: int) -> None:
    while _state(pid) == "T":
        time.sleep(0.001)


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_the_process_is_the_one_that_holds_the_lock(rank: subprocess.Popen[str], folder: Path) -> None:
    status = (folder / "r0.ring").stat()
    assert lock_holder(Path("/proc"), (status.st_dev, status.st_ino)) == rank.pid
