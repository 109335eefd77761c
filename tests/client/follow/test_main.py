"""The whole way: a log, the command in a process of its own, a ring, and what the exporter makes of it."""

from __future__ import annotations

import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pyrometer.follow.log_ring import last_recorded_step
from pyrometer.follow.main import main
from pyrometer_exporters.node.train.batches import Point
from pyrometer_exporters.node.train.points import PointStore
from pyrometer_exporters.node.train.rings import RingFile
from pyrometer_exporters.node.train.tracker import Rank, Tracker, to_point
from pyrometer_kit.clock import SystemClock

BLOOM = (
    "[default7]: iteration {:8}/  115311 | consumed samples: 1 | elapsed time per iteration (s): {} | global batch size"
    ":  2048 | lm loss: 1.979558E+00 | grad norm: 0.132 | samples per second: 19.561 | TFLOPs: 149.77 |\n"
)
BLOOM_CONFIG = {
    "model_type": "bloom", "n_layer": 70, "hidden_size": 14336, "n_head": 112, "vocab_size": 250880,
}  # fmt: skip
SETTINGS = ("--run=bloom", "--gpus=384", "--sequence-length=2048", "--peak-flops=312e12", "--attempt=0")

Follow = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "train.log"


@pytest.fixture
def follow(tmp_path: Path, log: Path) -> Iterator[Follow]:
    """Starts the command; what still runs at the end is killed."""
    started: list[subprocess.Popen[str]] = []

    def start(*more: str) -> subprocess.Popen[str]:
        command = [
            sys.executable,
            "-m",
            "pyrometer.follow",
            str(log),
            f"--rings={tmp_path / 'rings'}",
            *SETTINGS,
            *more,
        ]
        started.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def write(log: Path, *steps: int, seconds: float = 104.698) -> None:
    with log.open("a", encoding="utf-8") as file:
        file.writelines(BLOOM.format(step, seconds) for step in steps)


class Exporter:
    """The exporter's own reading of the rings."""

    def __init__(self, folder: Path) -> None:
        self.store = PointStore()
        self.tracker = Tracker(folder, SystemClock(), self.store)
        self.folder = folder

    def points(self, attempt: str = "0") -> list[Point]:
        if self.folder.exists():
            self.tracker.poll()
        pending = self.store.pending("test")
        return [point for key, rows in pending.items() if key[::2] == ("bloom", attempt) for point in rows.points]

    def wait_for(self, count: int, attempt: str = "0") -> list[Point]:
        deadline = time.monotonic() + 20
        while len(found := self.points(attempt)) < count:
            assert time.monotonic() < deadline, f"{len(found)} points instead of {count}"
            time.sleep(0.05)
        return found


@pytest.fixture
def exporter(tmp_path: Path) -> Iterator[Exporter]:
    made = Exporter(tmp_path / "rings")
    yield made
    made.tracker.close()


def test_blooms_own_line_becomes_its_true_mfu_beside_its_own_figure(
    follow: Follow, exporter: Exporter, log: Path, tmp_path: Path
) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(BLOOM_CONFIG))
    write(log, 85376, 85377)
    process = follow(f"--model-config={config}", "--convention=korthikanti")
    first, second = exporter.wait_for(2)
    assert second.reported_flops_per_second == 149.77e12
    assert second.flops_per_second == pytest.approx(112.89e12, rel=1e-4)
    assert second.mfu == pytest.approx(0.362, abs=0.0005)
    assert (second.step, second.seconds, second.loss) == (85377, pytest.approx(104.698), 1.979558)
    assert (first.tags, second.tags) == (("warmup",), ())
    assert second.timestamp - first.timestamp == pytest.approx(104_698, abs=2)
    (rank,) = exporter.tracker.ranks()
    assert (rank.meta.source, rank.meta.world_size, rank.header.steps) == ("log:megatron-deepspeed", 384, 2)
    process.terminate()
    assert process.wait(10) == 0


def test_lines_are_followed_as_they_come_and_a_good_end_closes_the_run(
    follow: Follow, exporter: Exporter, log: Path
) -> None:
    process = follow("--wait")
    write(log, 10)
    exporter.wait_for(1)
    write(log, 20, 30)
    assert [point.step for point in exporter.wait_for(3)] == [10, 20, 30]
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 0
    exporter.tracker.poll()
    (rank,) = exporter.tracker.ranks()
    assert rank.header.closed
    assert rank.header.steps == 21
    assert rank.header.step_total / 1e9 == pytest.approx(21 * 104.698)


def test_a_follower_that_was_killed_goes_on_where_it_was(follow: Follow, exporter: Exporter, log: Path) -> None:
    first = follow("--wait")
    write(log, 1, 2)
    exporter.wait_for(2)
    first.kill()
    first.wait()
    write(log, 3)
    follow()
    assert [point.step for point in exporter.wait_for(3)] == [1, 2, 3]
    write(log, 4)
    assert [point.step for point in exporter.wait_for(4)] == [1, 2, 3, 4]


def test_a_restart_in_the_same_log_is_the_next_attempt(follow: Follow, exporter: Exporter, log: Path) -> None:
    write(log, 10, 11, 12)
    follow()
    assert [point.step for point in exporter.wait_for(3)] == [10, 11, 12]
    write(log, 11, 12)
    assert [point.step for point in exporter.wait_for(2, attempt="1")] == [11, 12]


def test_two_followers_of_one_run_are_one_too_many(follow: Follow, exporter: Exporter, log: Path) -> None:
    write(log, 1)
    follow()
    exporter.wait_for(1)
    second = follow()
    assert second.wait(10) == 2
    assert second.stderr is not None
    assert "run bloom is already being followed" in second.stderr.read()


def test_it_ends_with_the_job(follow: Follow, exporter: Exporter, log: Path) -> None:
    job = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    process = follow("--wait", f"--pid={job.pid}")
    write(log, 1)
    exporter.wait_for(1)
    write(log, 2)
    job.communicate(b"\n")
    assert process.wait(10) == 0
    assert [point.step for point in exporter.points()] == [1, 2]


@pytest.fixture
def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to be in, and a command that has been told to stop before it begins."""
    event = threading.Event()
    event.set()
    monkeypatch.chdir(tmp_path)
    for name in ("WORLD_SIZE", "SLURM_NTASKS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pyrometer.follow.main._stop_at_signals", lambda: event)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model-config=missing.json", "--sequence-length=8"], "missing.json"),
        (["--model-config=config.json"], "--model-config needs --sequence-length"),
        (["--model-config=bad.json", "--sequence-length=8"], "bad.json: unknown model_type"),
        (["--model-config=list.json", "--sequence-length=8"], "list.json: not a JSON object"),
        (["--rings=/proc/nowhere"], "/proc/nowhere"),
        (["--pattern=loss (?P<loss>.*)"], "--pattern: no pattern has the group step"),
        (["--pattern-file=missing.yaml"], "missing.yaml: No such file"),
        (["--pattern-file=bad.json"], "bad.json: line 1 is not 'key: value'"),
        (["--pattern-file=own.yaml"], "own.yaml: unknown convention mine; known are palm"),
        (["--pattern=(?P<step>.)", "--format=nanogpt"], "exclude each other"),
    ],
)
def test_what_it_cannot_use_is_one_line(
    arguments: list[str], message: str, stopped: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (stopped / "bad.json").write_text("{}")
    (stopped / "list.json").write_text("[]")
    (stopped / "own.yaml").write_text(r"{lines: '(?P<step>\d+)', convention: mine}"[1:-1].replace(", ", "\n"))
    write(stopped / "train.log", 1)
    assert main(["train.log", "--run=x", "--rings=.", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    "flag", ["--pid=0", "--pid=x", "--gpus=-1", "--expected-mfu=40", "--tokens-per-step=nan", "--peak-flops=many"]
)
def test_a_number_that_cannot_be_is_refused(flag: str, stopped: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["train.log", "--run=x", "--rings=.", flag])
    assert raised.value.code == 2
    name, _, value = flag.partition("=")
    assert f"argument {name}: {value} is " in capsys.readouterr().err


def test_a_log_that_does_not_exist_is_refused_at_once(stopped: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train.log", "--run=x", "--rings=."]) == 2
    reason = "train.log does not exist: check the path, or give --wait if the job creates it later"
    assert capsys.readouterr().err == f"pyrometer-follow: {reason}\n"
    assert main([".", "--run=x", "--rings=."]) == 2
    assert capsys.readouterr().err == "pyrometer-follow: . is a directory: give the log file\n"


def test_with_wait_a_log_may_be_created_later(stopped: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train.log", "--run=x", "--rings=.", "--wait"]) == 0
    error = capsys.readouterr().err
    assert "following train.log as run x, which does not exist yet: waiting for it\n" in error


def test_a_format_of_ones_own_is_the_runs_source(stopped: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (stopped / "train.log").write_text("Schritt 1: Verlust 2,3 in 250 ms\nSchritt 2: Verlust 2.2 in 260 ms\n")
    (stopped / "ours.yaml").write_text("lines: 'Schritt (?P<step>.*): .* in (?P<seconds>.*)'\n")
    flags = ["--pattern-file=ours.yaml", "--gpus=2", "--tokens-per-step=1e6", "--flops-per-token=6e9"]
    assert main(["train.log", "--run=x", "--rings=.", *flags]) == 0
    assert last_recorded_step(".", "x", 0) == 2
    error = capsys.readouterr().err
    assert "log format: ours\n" in error
    assert "step 1: 24,000.0 TFLOP/s, 12,000.0 per GPU; no MFU, as the GPU is unknown (--gpu-model" in error


def test_the_version_is_that_of_the_installed_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["--version"])
    assert raised.value.code == 0
    version = importlib.metadata.version("pyrometer")
    assert capsys.readouterr().out.startswith(f"pyrometer-follow, version {version} (python 3.")


def test_a_garbled_line_costs_no_more_than_itself(stopped: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(stopped / "train.log", 1)
    write(stopped / "train.log", 2, seconds=1e299)
    write(stopped / "train.log", 3, 10**14)
    assert main(["train.log", "--run=x", "--rings=."]) == 0
    assert "left out 1 lines without a step time" in capsys.readouterr().err
    assert last_recorded_step(".", "x", 0) == 3


def test_a_long_log_is_read_to_its_end_and_its_attempts_are_counted(stopped: Path) -> None:
    write(stopped / "train.log", *range(3000), *range(3000), seconds=0.1)
    assert main(["train.log", "--run=x", "--rings=.", "--attempt=0"]) == 0
    assert last_recorded_step(".", "x", 1) == 2999


def test_attempts_are_counted_on_over_a_rotation_and_a_restart_of_the_follower(stopped: Path) -> None:
    def follow_it() -> None:
        assert main(["train.log", "--run=x", "--rings=."]) == 0

    write(stopped / "train.log", 1, 2, 1, 2, 3)
    follow_it()
    follow_it()
    assert [last_recorded_step(".", "x", attempt) for attempt in (0, 1, 2)] == [2, 3, None], "the same file, read again"
    (stopped / "train.log").rename(stopped / "train.log.1")
    write(stopped / "train.log", 4, 5, 4)
    follow_it()
    assert [last_recorded_step(".", "x", attempt) for attempt in (0, 1, 2)] == [2, 5, 4]
    write(stopped / "train.log", 5)
    follow_it()
    assert [last_recorded_step(".", "x", attempt) for attempt in (0, 1, 2, 3)] == [2, 5, 5, None]


def test_without_a_number_of_gpus_the_ring_says_that_it_is_unknown(
    stopped: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm's tasks are none: one of them may have eight GPUs."""
    monkeypatch.setenv("SLURM_NTASKS", "4")
    write(stopped / "train.log", 1, 2)
    assert main(["train.log", "--run=x", "--rings=.", "--flops-per-token=6e9"]) == 0
    assert "the log doesn't print the number of GPUs" in capsys.readouterr().err
    (path,) = stopped.glob("*.ring")
    file = RingFile(str(path))
    assert file.meta.world_size == 0
    point = to_point(next(file.records(0, 1)), Rank(file, file.header(), 0, 1e15), 0)
    assert (point.mfu, point.flops_per_second, point.steps) == (None, None, 1)
    file.close()


def test_yesterdays_log_is_not_todays_run(stopped: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(stopped / "train.log", 1, 2)
    yesterday = time.time() - 86_400
    os.utime("train.log", (yesterday, yesterday))
    assert main(["train.log", "--run=x", "--rings=."]) == 0
    assert "left out 2 lines that are too old for Prometheus" in capsys.readouterr().err
    assert not list(stopped.glob("*.ring"))


def test_a_second_follower_that_waited_for_the_same_log_gives_way(
    stopped: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(stopped / "train.log", 1)
    answers = iter([None, "first.ring"])
    monkeypatch.setattr("pyrometer.follow.main.active_ring", lambda *_: next(answers))
    assert main(["train.log", "--run=x", "--rings=."]) == 2
    assert "run x is already being followed (first.ring)" in capsys.readouterr().err


def test_rings_that_ended_long_ago_are_removed(stopped: Path) -> None:
    old = stopped / "y.log.1.1.ring"
    old.write_bytes(b"")
    os.utime(old, (0.0, 0.0))
    write(stopped / "train.log", 1)
    assert main(["train.log", "--run=x", "--rings=."]) == 0
    assert not old.exists()


def test_a_log_that_is_none_is_said_at_the_end(stopped: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (stopped / "train.log").write_text("hello\n")
    assert main(["train.log", "--run=x", "--rings=."]) == 0
    assert "no training step found in" in capsys.readouterr().err
