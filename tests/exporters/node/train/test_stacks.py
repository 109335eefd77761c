"""Stacks of stalled ranks: which to request, and how to group them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrometer import ring
from pyrometer_exporters.framework.collector import Context
from pyrometer_exporters.framework.exposition import Renderer
from pyrometer_exporters.node.train import stacks as stacks_module
from pyrometer_exporters.node.train.collector import TrainCollector
from pyrometer_exporters.node.train.points import PointStore
from pyrometer_exporters.node.train.stacks import Stacks, fold, main_thread, place_of, ranges
from pyrometer_exporters.node.train.tracker import Tracker
from pyrometer_kit.http_message import Request

DUMP = """Thread 0x00007f0001 [pt_data_worker] (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 324 in wait

Current thread 0x00007f0002 [python] (most recent call first):
  File "/job/{0}.py", line {1} in {0}
  File "/job/train.py", line 7 in <module>
"""


def test_the_main_thread_is_the_one_that_took_the_signal() -> None:
    assert main_thread(DUMP.format("all_reduce", 12)) == (
        "all_reduce (/job/all_reduce.py:12)", "<module> (/job/train.py:7)",
    )  # fmt: skip
    assert main_thread(DUMP.format("old", 1) + DUMP.format("new", 2))[0] == "new (/job/new.py:2)"
    assert main_thread("") == ()


def test_the_odd_stack_out_comes_first() -> None:
    dumps = {str(rank): DUMP.format("all_reduce", 12) for rank in range(8)}
    dumps["5"] = DUMP.format("read_batch", 3)
    dumps["6"] = ""
    assert fold(dumps).splitlines() == [
        "rank 5:", "  read_batch (/job/read_batch.py:3)", "  <module> (/job/train.py:7)", "",
        "rank 6:", "  no answer", "",
        "ranks 0-4,7:", "  all_reduce (/job/all_reduce.py:12)", "  <module> (/job/train.py:7)",
    ]  # fmt: skip


@given(st.lists(st.integers(0, 500), unique=True))
def test_ranges_name_each_number_once(numbers: list[int]) -> None:
    spans = [span.split("-") for span in ranges(numbers).split(",") if span]
    assert sorted(numbers) == [n for span in spans for n in range(int(span[0]), int(span[-1]) + 1)]


@given(st.text())
def test_any_text_folds(text: str) -> None:
    assert "rank" in fold({"0": text})


@pytest.fixture
def signals(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Signals that would be sent, as (pid, number)."""
    sent: list[tuple[int, int]] = []
    opened: dict[int, int] = {}

    def pidfd_open(pid: int) -> int:
        opened[found := os.open("/dev/null", os.O_RDONLY)] = pid
        return found

    monkeypatch.setattr(stacks_module.os, "pidfd_open", pidfd_open)
    monkeypatch.setattr(
        stacks_module.signal, "pidfd_send_signal", lambda process, number: sent.append((opened[process], number))
    )
    return sent


class Scene:
    """A rank of half-second steps that is in its twelfth, on a machine whose /proc says what it should."""

    def __init__(self, rings: Callable[..., Any], clock: Any, folder: Path, procfs: Path) -> None:
        self.clock, self.procfs = clock, procfs
        self.ring = rings()
        for n in range(11):
            self.ring.step(clock.now + n, clock.now + n + 0.5)
        clock.advance(12)
        self.ring.slot(ring.STEP_STARTED_SLOT, int(clock.now * 1e9))
        self.ring.slot(ring.STACK_SIGNAL_SLOT, int(signal.SIGUSR2))
        found = self.ring.path.stat()
        place = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
        (procfs / "4242" / "fd").mkdir(parents=True)
        (procfs / "4242" / "fd" / "7").symlink_to(self.ring.path)
        self.began(clock.now - 100)
        locks = (("POSIX", 1), ("FLOCK", 4242))
        lines = [f"{n}: {kind}  ADVISORY  WRITE {pid} {place} 0 EOF\n" for n, (kind, pid) in enumerate(locks)]
        (procfs / "locks").write_text("".join(lines))
        self.catches(signal.SIGUSR2)
        self.tracker = Tracker(folder, clock, PointStore())
        self.stacks = Stacks(procfs, clock)

    def catches(self, *numbers: int, uid: int | None = None) -> None:
        mask = sum(1 << number - 1 for number in numbers)
        user = "\t".join(4 * [str(os.getuid() if uid is None else uid)])
        (self.procfs / "4242" / "status").write_text(f"Name:\tpython\nUid:\t{user}\nSigCgt:\t{mask:016x}\n")

    def began(self, at: float) -> None:
        ticks = int((at + Stacks._suspended()) * os.sysconf("SC_CLK_TCK"))
        fields = ["S", *["0"] * 18, str(ticks), "0"]
        (self.procfs / "4242" / "stat").write_text(f"4242 (a) b) {' '.join(fields)}\n")

    def look(self, seconds: float = 0.0) -> None:
        self.clock.advance(seconds)
        self.tracker.poll()
        self.stacks.poll(self.tracker.ranks())


@pytest.fixture
def scene(rings: Callable[..., Any], clock: Any, folder: Path, tmp_path: Path) -> Iterator[Scene]:
    made = Scene(rings, clock, folder, tmp_path / "proc")
    yield made
    made.tracker.close()


def test_a_rank_that_stands_still_is_asked_once_in_five_minutes(scene: Scene, signals: list[Any]) -> None:
    scene.look(5.4)
    assert signals == []
    scene.look(0.2)
    scene.look(10)
    assert signals == [(4242, signal.SIGUSR2)]
    scene.look(300)
    assert len(signals) == 2


def test_its_answer_is_what_it_wrote_since(scene: Scene, signals: list[Any]) -> None:
    assert "No rank" in scene.stacks.report(scene.tracker.ranks())
    dump = scene.ring.path.with_suffix(".stacks")
    dump.write_text(DUMP.format("long_ago", 1))
    scene.look(10)
    assert "rank 0:\n  no answer" in scene.stacks.report(scene.tracker.ranks())
    with open(dump, "a", encoding="utf-8") as file:
        file.write(DUMP.format("all_reduce", 12))
    report = scene.stacks.report(scene.tracker.ranks())
    assert report.startswith("run llama (77), attempt 0, 20")
    assert "rank 0:\n  all_reduce (/job/all_reduce.py:12)" in report
    assert "long_ago" not in report


def test_where_a_stalled_rank_is_becomes_a_series_until_it_goes_on(
    scene: Scene, signals: list[Any], golden: Callable[[str, str], None]
) -> None:
    dump = scene.ring.path.with_suffix(".stacks")
    scene.look(10)
    assert list(scene.stacks.samples(scene.tracker.ranks())) == []
    dump.write_text(DUMP.format("dataloader", 88))
    golden(Renderer().text(scene.stacks.samples(scene.tracker.ranks())).decode(), "golden/stacks.txt")
    scene.ring.step(scene.clock.now, scene.clock.now + 1)
    scene.look(0.1)
    assert list(scene.stacks.samples(scene.tracker.ranks())) == []


def test_a_loop_that_ticks_is_asked_where_its_pauses_have_names(scene: Scene, signals: list[Any]) -> None:
    scene.ring.slot(ring.STEP_STARTED_SLOT, 0)
    scene.ring.slot(ring.TICKING_SLOT, ring.NAMED)
    scene.look(100)
    assert signals == [(4242, signal.SIGUSR2)]


@pytest.mark.parametrize(
    "why", ["not allowed", "in a checkpoint", "between steps", "between unnamed ticks", "gone", "young"]
)
def test_a_rank_is_left_alone(why: str, scene: Scene, signals: list[Any]) -> None:
    if why == "not allowed":
        scene.ring.slot(ring.STACK_SIGNAL_SLOT, 0)
    elif why == "in a checkpoint":
        scene.ring.slot(ring.PART_SLOT, 1 + ring.PARTS.index("checkpoint"))
    elif why == "between steps":
        scene.ring.slot(ring.STEP_STARTED_SLOT, 0)
    elif why == "between unnamed ticks":
        scene.ring.slot(ring.STEP_STARTED_SLOT, 0)
        scene.ring.slot(ring.TICKING_SLOT, ring.UNNAMED)
    elif why == "gone":
        scene.ring.crash()
    else:
        scene.ring.slot(ring.COUNT_SLOT, 3)
    scene.look(100)
    assert signals == []


@pytest.mark.parametrize(
    "why", ["not caught", "another holds the lock", "no /proc", "another user's", "began later", "ring not open"]
)
def test_a_process_that_the_signal_would_end_never_gets_it(
    why: str, scene: Scene, signals: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    if why == "not caught":
        scene.catches(signal.SIGUSR1)
    elif why == "another user's":
        scene.catches(signal.SIGUSR2, uid=os.getuid() + 1)
    elif why == "began later":
        scene.began(scene.clock.now)
    elif why == "ring not open":
        (scene.procfs / "4242" / "fd" / "7").unlink()
    elif why == "another holds the lock":
        (scene.procfs / "locks").write_text("1: FLOCK  ADVISORY  WRITE 4242 00:01:1 0 EOF\n")
    else:
        (scene.procfs / "locks").unlink()
    scene.look(100)
    assert signals == []
    assert "has stalled" in caplog.text


BYSTANDER = (
    "import signal, sys, time\n"
    "signal.signal(signal.SIGUSR2, lambda *_: sys.exit(9))\n"
    "print('in', flush=True)\n"
    "time.sleep(60)\n"
)


def test_a_process_that_got_the_number_of_a_dead_rank_is_not_signalled(scene: Scene) -> None:
    """The kernel's list of locks keeps the number of the process that took the lock, though a child holds it by now."""
    with subprocess.Popen([sys.executable, "-c", BYSTANDER], stdout=subprocess.PIPE) as bystander:
        assert bystander.stdout is not None
        bystander.stdout.readline()
        locks = (scene.procfs / "locks").read_text()
        (scene.procfs / "locks").write_text(locks.replace("4242", str(bystander.pid)))
        (scene.procfs / str(bystander.pid)).symlink_to(f"/proc/{bystander.pid}")
        scene.look(100)
        with pytest.raises(subprocess.TimeoutExpired):
            bystander.wait(0.3)
        bystander.kill()


HANGS = (
    "import time, pyrometer\n"
    "run = pyrometer.start('live', stacks=True)\n"
    "for _ in range(10):\n"
    "    with run.step():\n"
    "        time.sleep(0.001)\n"
    "def all_reduce():\n"
    "    print('in', flush=True)\n"
    "    time.sleep(60)\n"
    "with run.step():\n"
    "    all_reduce()\n"
)


def test_a_real_rank_that_hangs(context: Context, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyrometer_kit.clock import SystemClock

    monkeypatch.setattr(stacks_module, "SLOW_SECONDS", 0.2)
    real = Context(context.flags, SystemClock(), context.sysfs, Path("/proc"), folder, context.state)
    environment = {"PYROMETER_RINGS": str(folder), "PATH": "/usr/bin:/bin"}
    collector = TrainCollector(real)
    with subprocess.Popen([sys.executable, "-c", HANGS], stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        process.stdout.readline()
        deadline = time.monotonic() + 20
        report = ""
        while "all_reduce" not in report and time.monotonic() < deadline:
            report = collector.endpoints()["/stacks"](Request("GET", "/stacks")).body.decode()
        assert process.poll() is None, "the signal did not end it"
        process.kill()
    collector.close()
    assert "rank 0:\n  all_reduce (<string>:8)" in report


def test_the_place_is_the_jobs_own_innermost_frame() -> None:
    installed = 'File "/env/lib/python3.12/site-packages/torch/utils/data/dataloader.py", line 700 in __next__'
    text = f"Current thread 0x1 [python]:\n  {installed}\n" + '  File "/job/dataloader.py", line 88 in fetch\n'
    assert place_of(main_thread(text)) == "dataloader.py:88"
    assert place_of(main_thread(f"Current thread 0x1:\n  {installed}\n")) == "dataloader.py:700"
    assert place_of(()) == ""
