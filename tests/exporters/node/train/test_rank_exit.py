"""How a rank's process ended: from its ring, or from the kernel where it keeps the status."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pyrometer import ring
from pyrometer_exporters.framework.collector import Context
from pyrometer_exporters.framework.metrics import Sample
from pyrometer_exporters.node.train.collector import TrainCollector
from pyrometer_exporters.node.train.rank_exit import can_hold, hold, lock_holder, words_of
from pyrometer_kit.clock import SystemClock

Rings = Callable[..., Any]
RANK = """
import pyrometer, sys
run = pyrometer.start("llama", rings=sys.argv[1])
with run.step():
    pass
print(flush=True)
sys.stdin.readline()
{end}
"""


@pytest.fixture
def collector(context: Context) -> Iterator[TrainCollector]:
    made = TrainCollector(dataclasses.replace(context, clock=SystemClock()))
    yield made
    made.close()


def exits(collector: TrainCollector) -> dict[str, str]:
    """Return how each rank ended, by its number."""
    samples = [each for each in collector.collect(time.monotonic() + 5) if isinstance(each, Sample)]
    return {s.labels[3]: s.labels[4] for s in samples if s.family.name == "pyrometer_train_rank_exit_info"}


def parts(collector: TrainCollector) -> set[str]:
    samples = [each for each in collector.collect(time.monotonic() + 5) if isinstance(each, Sample)]
    return {s.labels[5] for s in samples if s.family.name == "pyrometer_train_rank_exit_info"}


def words(made: Any, text: bytes) -> None:
    for number, start in enumerate(range(0, ring.EXIT_BYTES, 8)):
        made.slot(ring.EXIT_SLOT + number, int.from_bytes(text.ljust(64, b"\0")[start : start + 8], "little"))


def test_what_python_wrote_is_served_once_the_rank_is_gone(collector: TrainCollector, rings: Rings) -> None:
    first, second = rings("r0"), rings("r1", rank=1, reporting=False)
    words(first, b"torch.OutOfMemoryError")
    assert exits(collector) == {}
    first.crash()
    second.close()
    assert exits(collector) == {"0": "torch.OutOfMemoryError"}


def test_a_ring_of_an_older_client_says_nothing(collector: TrainCollector, rings: Rings) -> None:
    rings("r0").crash()
    assert exits(collector) == {}


@pytest.mark.skipif(not can_hold(), reason="this kernel is older than 6.15, which keeps no status")
@pytest.mark.parametrize(
    ("end", "told"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
        ("import os; os._exit(3)", "exit status 3"),
        ("raise ValueError", "ValueError"),
        ("sys.exit(4)", "exit status 4"),
    ],
)
def test_the_kernel_tells_the_signal(collector: TrainCollector, folder: Path, end: str, told: str) -> None:
    with _rank(folder, end) as rank:
        assert exits(collector) == {}
        rank.communicate("\n")
    assert exits(collector) == {"0": told}


@pytest.mark.parametrize(
    ("end", "part"),
    [
        ("with run.part('wait'): raise RuntimeError('Connection closed by peer')", "wait"),
        ("with run.part('backward'), run.part('wait'): raise RuntimeError", "wait"),
        ("with run.part('data'): raise ValueError", "data"),
        ("with run.part('data'): import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "data"),
        ("run.part('wait').__enter__(); import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "wait"),
        ("raise ValueError", "between"),
    ],
)
def test_the_part_in_which_it_ended_is_served(collector: TrainCollector, folder: Path, end: str, part: str) -> None:
    with _rank(folder, end) as rank:
        assert parts(collector) == set()
        rank.communicate("\n")
    assert parts(collector) == {part}


def test_an_exception_that_was_caught_in_an_earlier_step_is_not_the_end(
    collector: TrainCollector, folder: Path
) -> None:
    end = """
try:
    with run.step(), run.part("wait"): raise RuntimeError
except RuntimeError: pass
with run.step(): pass
raise ValueError"""
    with _rank(folder, end) as rank:
        rank.communicate("\n")
    assert parts(collector) == {"between"}


@contextlib.contextmanager
def _rank(folder: Path, end: str, number: int = 0) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", RANK.format(end=end), str(folder)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env={**os.environ, "RANK": str(number), "WORLD_SIZE": "2"},
    ) as rank:  # fmt: skip
        assert rank.stdout is not None
        rank.stdout.readline()
        yield rank
        rank.kill()


def test_ranks_that_end_within_moments_have_an_order(collector: TrainCollector, folder: Path) -> None:
    with _rank(folder, "", 0) as first, _rank(folder, "", 1) as second:
        assert exits(collector) == {}
        # Nothing reads the rings meanwhile but whoever waits for the processes.
        second.kill()
        _until(lambda: set(_noted(collector)) == {"1"})
        first.kill()
        _until(lambda: set(_noted(collector)) == {"0", "1"})
        noted = _noted(collector)
        assert set(exits(collector)) == {"0", "1"}
    samples = [each for each in collector.collect(time.monotonic() + 5) if isinstance(each, Sample)]
    ends = {s.labels[3]: s.value for s in samples if s.family.name == "pyrometer_train_rank_end_timestamp_seconds"}
    assert 0 < noted["0"] - noted["1"] == pytest.approx(ends["0"] - ends["1"], abs=1e-6)


def _noted(collector: TrainCollector) -> dict[str, float]:
    """Return when each rank's process was seen to end."""
    processes = {str(rank.meta.rank): rank.process for rank in collector._tracker.ranks()}
    return {rank: each.ended_at for rank, each in processes.items() if each is not None and each.ended_at is not None}


def _until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_closing_the_collector_does_not_wait_for_an_end(context: Context) -> None:
    made = TrainCollector(context)
    began = time.monotonic()
    made.close()
    assert time.monotonic() - began < 10


def test_a_ring_that_nobody_holds_has_no_process(tmp_path: Path) -> None:
    (tmp_path / "locks").write_text("1: POSIX  ADVISORY  WRITE 1 00:1a:7 0 EOF\n")
    assert hold(tmp_path, (26, 7)) is None
    assert hold(tmp_path / "absent", (26, 7)) is None


def test_a_list_of_locks_without_end_costs_no_more_than_its_time(tmp_path: Path) -> None:
    """Anybody may hold half a million locks, and the ring's holder be the last of the list."""
    mine = "9: FLOCK  ADVISORY  WRITE 4711 00:1a:7 0 EOF\n"
    (tmp_path / "locks").write_text("1: FLOCK  ADVISORY  READ 99 00:1a:77 0 EOF\n" * 200_000 + mine)
    assert lock_holder(tmp_path, (26, 7), time.monotonic() + 60) == 4711
    assert lock_holder(tmp_path, (26, 7), time.monotonic()) is None


def test_a_signal_without_a_name_has_its_number() -> None:
    assert words_of(80) == "signal 80"
