"""First steps: whether anybody reads the ring, and the GPU's name that ``start`` couldn't know."""

from __future__ import annotations

import grp
import os
import stat
import subprocess
import sys
import textwrap
import types
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import pyrometer
from pyrometer import _first_steps
from pyrometer_exporters.node.train.rings import RingFile

SECOND = 1_000_000_000


class Clock:
    def __init__(self) -> None:
        self.now = 0

    def monotonic_ns(self) -> int:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(_first_steps, "time", made)
    return made


def follow(path: str) -> subprocess.Popen[str]:
    """Start a process that reads a ring as the exporter does."""
    code = """
        import sys
        from pyrometer_exporters.node.train.rings import RingFile
        file = RingFile(sys.argv[1])
        assert file.alive()
        print("reading", flush=True)
        sys.stdin.read()
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "reading\n"
    return process


def steps(run: pyrometer.Run, count: int) -> None:
    for _ in range(count):
        with run.step():
            pass


def test_a_job_that_nobody_reads_says_so_once(rings: str, clock: Clock, capfd: pytest.CaptureFixture[str]) -> None:
    run = pyrometer.start("r", rings=rings)
    steps(run, 20)
    assert capfd.readouterr().err == ""
    clock.now = 11 * SECOND
    steps(run, 20)
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith(f"pyrometer: run r: nothing reads {run.path} after 21 steps: is the node exporter running")
    run.close()


@pytest.mark.parametrize(
    ("settings", "named"),
    [({}, True), ({"rank": 8, "local_rank": 0}, False), ({"rank": 7, "reporting_rank": 7}, True)],
)
def test_the_reporting_rank_says_who_reads_wherever_it_is(
    settings: dict[str, int], named: bool, rings: str, clock: Clock, capfd: pytest.CaptureFixture[str]
) -> None:
    with mock.patch.dict(os.environ, LOCAL_RANK=str(settings.get("rank", 0) % 8)):
        run: Any = pyrometer.start("r", rings=rings, **settings)  # type: ignore[arg-type]
    process = follow(run.path)
    clock.now = 11 * SECOND
    steps(run, 10)
    process.communicate("")
    read_by = f"pyrometer: run r: read by process {process.pid} of "
    assert [line[: len(read_by)] for line in capfd.readouterr().err.splitlines()] == [read_by] * named
    run.close()


def test_the_writers_own_mapping_is_no_reader(rings: str, clock: Clock, capfd: pytest.CaptureFixture[str]) -> None:
    run = pyrometer.start("r", rings=rings)
    run.record(lr=0.1)
    clock.now = 11 * SECOND
    steps(run, 10)
    assert "nothing reads" in capfd.readouterr().err
    run.close()


def test_an_earlier_exporter_is_known_by_the_access_time(
    rings: str, clock: Clock, capfd: pytest.CaptureFixture[str]
) -> None:
    run = pyrometer.start("r", rings=rings)
    os.utime(run.path, ns=(5, Path(run.path).stat().st_mtime_ns))
    clock.now = 11 * SECOND
    steps(run, 10)
    assert capfd.readouterr().err == "pyrometer: run r: read by an unknown process\n"
    run.close()


def test_a_fast_loop_is_judged_early_or_not_at_all(rings: str, clock: Clock, capfd: pytest.CaptureFixture[str]) -> None:
    for name, seconds, lines in (("early", 3, 1), ("toy", 1, 0)):
        clock.now = 0
        run = pyrometer.start(name, rings=rings)
        clock.now = seconds * SECOND
        steps(run, 1100)
        assert capfd.readouterr().err.count("nothing reads") == lines
        run.close()


def test_a_group_alone_may_read(rings: str, seen: Any) -> None:
    gid = os.getgroups()[0] if os.getgroups() else os.getgid()
    names = [group.gr_name for group in grp.getgrall() if group.gr_gid == gid]  # none in many containers
    for group in (str(gid), *names[:1]):
        run = pyrometer.start("r", rings=rings, group=group)
        found = Path(run.path).stat()
        assert (stat.S_IMODE(found.st_mode), found.st_gid) == (0o640, gid)
        run.close()


def test_with_a_group_that_does_not_exist_nobody_else_may_read(rings: str, capfd: pytest.CaptureFixture[str]) -> None:
    run = pyrometer.start("r", rings=rings, group="no-such-group")
    assert capfd.readouterr().err == (
        "pyrometer: run r: can't change the ring's group to no-such-group: there is no such group: nobody but you and "
        "root can read it\n"
    )
    assert [stat.S_IMODE(path.stat().st_mode) for path in Path(rings).iterdir()] == [0o600]
    run.close()


def test_the_gpu_is_named_at_the_first_step_where_cuda_comes_up_late(
    rings: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = types.SimpleNamespace(cuda=types.SimpleNamespace(is_initialized=lambda: False))
    monkeypatch.setitem(sys.modules, "torch", torch)  # type: ignore[arg-type]
    run = pyrometer.start("r", rings=rings)
    file = RingFile(run.path)
    try:
        assert (file.meta.texts["gpu_model"], file.gpu_model()) == ("", "")
        torch.cuda.is_initialized = lambda: True
        torch.cuda.get_device_name = lambda: "NVIDIA H100 80GB HBM3"
        steps(run, 1)
        assert file.gpu_model() == "NVIDIA H100 80GB HBM3"
    finally:
        file.close()
        run.close()
