"""Forks, spawns, kills, exits: what becomes of the ring when processes do what processes do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from client_ring_reader import Python, ReadRing

from pyrometer import ring


def only(rings: str) -> Path:
    (path,) = Path(rings).iterdir()
    return path


def test_importing_loads_little_and_only_the_standard_library(python: Python) -> None:
    script = """
        import sys
        before = set(sys.modules)
        import pyrometer
        loaded = {name.partition(".")[0] for name in set(sys.modules) - before}
        print(*sorted(loaded))
    """
    loaded = set(python(script).stdout.split())
    assert loaded - {"pyrometer"} <= sys.stdlib_module_names
    heavy = "ssl http functools collections asyncio typing json socket logging threading pathlib dataclasses"
    assert not loaded & {*heavy.split()}


def test_starting_opens_no_socket_and_no_thread(python: Python) -> None:
    script = """
        import sys, os, pyrometer
        run = pyrometer.start("r")
        with run.step():
            pass
        print(len(os.listdir("/proc/self/task")), "socket" in sys.modules, "ssl" in sys.modules)
    """
    assert python(script).stdout == "1 False False\n"


def test_a_child_forked_inside_a_step_writes_nothing_and_lets_go_of_the_ring(
    python: Python, rings: str, seen: ReadRing
) -> None:
    done = python("""
        import os, pyrometer
        run = pyrometer.start("r")
        with run.step():
            with run.part("data"):
                pid = os.fork()
                if pid == 0:
                    run.record(loss=1.0)
        if pid == 0:
            for _ in range(100):
                with run.step(), run.part("eval"):
                    run.tag("eval")
            run.close()
            os._exit(run.disabled != "forked child" or ".ring" in open("/proc/self/maps").read())
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), run.disabled, flush=True)
        os.kill(os.getpid(), 9)
    """)
    assert done.stdout == "0 None\n", done
    found = seen(only(rings))
    assert found.header.count == 1
    assert found.records[0].loss is None
    assert not found.header.closed
    assert found.header.part_totals[ring.PARTS.index("eval")] == 0


def test_a_living_forked_child_does_not_keep_a_killed_rank_alive(python: Python, rings: str, seen: ReadRing) -> None:
    script = """
        import os, signal, pyrometer
        run = pyrometer.start("r")
        with run.step():
            pid = os.fork()
        if pid == 0:
            os.close(1), os.close(2)
            signal.pause()
        print(pid, flush=True)
        os.kill(os.getpid(), 9)
    """
    done = python(script)
    child = int(done.stdout)
    try:
        assert not seen(only(rings)).alive
    finally:
        os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_data_loader_workers_write_nothing(method: Any, tmp_path: Path, rings: str, seen: ReadRing) -> None:
    script = tmp_path / "job.py"
    script.write_text(
        "import multiprocessing, sys, pyrometer\n"
        "run = None\n"
        "def work(number):\n"
        "    if run is not None:\n"
        "        with run.step():\n"
        "            pass\n"
        "    return number\n"
        "if __name__ == '__main__':\n"
        "    run = pyrometer.start('r')\n"
        "    with run.step():\n"
        "        with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:\n"
        "            assert pool.map(work, range(8)) == list(range(8))\n"
        "    run.close()\n"
    )
    environment = {"PYROMETER_RINGS": rings, "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script), method],
        capture_output=True, text=True, timeout=60, env=environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = seen(only(rings))
    assert found.header.count == 1
    assert found.header.closed


def test_after_sigkill_the_ring_still_tells_the_last_step_and_part(rings: str, seen: ReadRing) -> None:
    script = (
        "import signal, pyrometer\nrun = pyrometer.start('r')\nfor _ in range(5):\n    with run.step():\n        pass\n"
        "with run.step(), run.part('backward'):\n    print('in', flush=True)\n    signal.pause()\n"
    )
    environment = {"PYROMETER_RINGS": rings, "PATH": "/usr/bin:/bin"}
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"in\n"
        assert seen(only(rings)).alive
        process.kill()
    found = seen(only(rings))
    assert not found.alive
    assert not found.header.closed
    assert found.header.count == 5
    assert ring.PARTS[found.header.part - 1] == "backward"
    assert found.header.step_started > found.records[-1].end


def test_many_runs_in_one_process_leave_no_descriptors(python: Python) -> None:
    done = python("""
        import os, gc, pyrometer
        gc.disable()
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(50):
            run = pyrometer.start("r")
            with run.step():
                pass
        run.close()
        print(len(os.listdir("/proc/self/fd")) - before)
    """)
    assert done.stdout == "0\n", done


def test_a_step_makes_no_system_call_that_a_clock_does_not(python: Python) -> None:
    """Page faults aside, the hot path is memory: 100,000 steps cost far less than 100,000 system calls would."""
    done = python("""
        import os, time, pyrometer
        run = pyrometer.start("r")
        with run.step():
            pass
        t = os.times()
        for _ in range(100_000):
            with run.step():
                pass
        print(os.times().system - t.system < 0.2)
    """)
    assert done.stdout == "True\n"


def test_the_clock_of_a_ring_is_the_readers_own(rings: str, python: Python, seen: ReadRing) -> None:
    python("import pyrometer; run = pyrometer.start('r')\nwith run.step(): pass")
    assert 0 < time.monotonic_ns() - seen(only(rings)).records[0].end < 60e9
