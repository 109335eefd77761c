"""The client with the kernel's own users, clocks and memory, and on every Python of this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from client_ring_reader import ReadRing, RingContent
from tools.pythons import SUPPORTED, find

import pyrometer
from pyrometer import _ring_file

NOBODY = 65534
CLIENT = Path(pyrometer.__file__).parents[1]
STEPS = "import pyrometer\nrun = pyrometer.start('r')\nfor _ in range(3):\n    with run.step():\n        pass\n"
CHILD = """
import multiprocessing, sys, pyrometer
kept = []
def work():
    run = pyrometer.start('r')
    kept.append(run)
    for _ in range(3):
        with run.step():
            pass
    raise ValueError
if __name__ == '__main__':
    child = multiprocessing.get_context(sys.argv[1]).Process(target=work)
    child.start()
    child.join()
"""


def environment(rings: str) -> dict[str, str]:
    return {"PYROMETER_RINGS": rings, "PATH": os.environ["PATH"], "PYTHONPATH": str(CLIENT)}


def readable_by(user: int, path: Path) -> bool:
    """Return whether a process of this user reads the ring with the exporter's reader."""
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
            os._exit(0 if RingContent(path).header.count == 1 else 1)
        finally:
            os._exit(2)
    return os.waitpid(child, 0)[1] == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
@pytest.mark.parametrize(("group", "expected"), [(None, True), (str(os.getgid()), False)])
def test_another_user_reads_the_ring_of_a_job_with_umask_077(rings: str, group: str | None, expected: bool) -> None:
    Path(rings).chmod(0o755)
    before = os.umask(0o077)
    try:
        run = pyrometer.start("r", rings=rings, group=group)
        with run.step():
            pass
        assert readable_by(NOBODY, Path(run.path)) is expected
        run.close()
    finally:
        os.umask(before)


def _has_time_namespaces() -> bool:
    program = shutil.which("unshare")
    return (
        bool(program)
        and subprocess.run([str(program), "--time", "true"], capture_output=True, check=False).returncode == 0
    )


@pytest.mark.skipif(not _has_time_namespaces(), reason="needs root and a kernel with time namespaces")
def test_steps_of_a_time_namespace_have_our_time(rings: str, seen: ReadRing) -> None:
    command = ["unshare", "--time", "--monotonic=100000", "--fork", sys.executable, "-c", STEPS]
    subprocess.run(command, check=True, timeout=60, env=environment(rings), capture_output=True)
    (path,) = Path(rings).iterdir()
    found = seen(path)
    assert found.meta.clock_offset == 100_000 * 10**9
    assert all(0 < time.monotonic_ns() - record.end < 60e9 for record in found.records)


@pytest.mark.parametrize("version", SUPPORTED)
@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_a_rank_that_dies_of_an_exception_as_a_child_has_no_good_end(
    version: str, method: str, tmp_path: Path, rings: str, seen: ReadRing
) -> None:
    program = find(version)
    if program is None:
        pytest.skip(f"Python {version} is not installed here")
    (tmp_path / "job.py").write_text(CHILD)
    command = [str(program), str(tmp_path / "job.py"), method]
    subprocess.run(command, check=True, timeout=60, env=environment(rings), capture_output=True)
    (path,) = Path(rings).iterdir()
    assert not seen(path).header.closed


def test_three_thousand_stale_rings_cost_a_start_less_than_a_tenth_of_a_second(rings: str) -> None:
    long_ago = time.time() - 10 * _ring_file.STALE_SECONDS
    for number in range(3000):
        path = Path(rings, f"old{number}.0.1.{number}.ring")
        path.write_bytes(bytes(4096))
        os.utime(path, (long_ago, long_ago))
    spent = []
    for _ in range(3):
        before = time.process_time()
        pyrometer.start("r", rings=rings).close()
        spent.append(time.process_time() - before)
    assert min(spent) < 0.1
