"""Stack dumps on a signal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from client_ring_reader import Python, ReadRing

HANGS = (
    "import signal, pyrometer\n"
    "run = pyrometer.start('r', stacks=True)\n"
    "def all_reduce():\n"
    "    print(run.path, flush=True)\n"
    "    while True:\n"
    "        signal.pause()\n"
    "with run.step():\n"
    "    all_reduce()\n"
)


def test_the_signal_writes_the_stacks_beside_the_ring_and_the_job_goes_on(rings: str, seen: ReadRing) -> None:
    environment = {"PYROMETER_RINGS": rings, "PATH": "/usr/bin:/bin"}
    with subprocess.Popen([sys.executable, "-c", HANGS], stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        path = Path(process.stdout.readline().decode().strip())
        assert seen(path).header.stack_signal == signal.SIGUSR2
        os.kill(process.pid, signal.SIGUSR2)
        stacks = path.with_suffix(".stacks")
        while "<module>" not in stacks.read_text():
            assert process.poll() is None
        assert process.poll() is None
        process.kill()
    assert "in all_reduce" in stacks.read_text()


def test_without_asking_there_is_no_handler_and_no_file(python: Python, rings: str) -> None:
    done = python("""
        import signal, sys, pyrometer
        run = pyrometer.start("r")
        print(signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL, "faulthandler" in sys.modules)
    """)
    assert done.stdout == "True False\n", done
    assert [path.suffix for path in Path(rings).iterdir()] == [".ring"]


def test_a_signal_that_the_job_uses_itself_is_left_to_it(python: Python, rings: str) -> None:
    done = python(
        """
        import os, signal, pyrometer
        signal.signal(signal.SIGUSR2, lambda *_: print("requeue"))
        run = pyrometer.start("r")
        os.kill(os.getpid(), signal.SIGUSR2)
        print(run.disabled)
    """,
        PYROMETER_STACKS="1",
    )
    assert done.stdout == "requeue\nNone\n", done
    assert done.stderr.startswith("pyrometer: no stack dumps: signal 12 is in use by the job")
    assert [path.suffix for path in Path(rings).iterdir()] == [".ring"]


@pytest.mark.parametrize("stacks", ["signal.SIGRTMIN + 3", "True"])
def test_a_late_signal_does_not_end_the_job(stacks: str, python: Python, rings: str, seen: ReadRing) -> None:
    done = python(f"""
        import os, signal, pyrometer
        run = pyrometer.start("r", stacks={stacks})
        run.close()
        os.kill(os.getpid(), {stacks if stacks != "True" else "signal.SIGUSR2"})
        print("still here")
    """)
    assert done.stdout == "still here\n", done
    (ring,) = Path(rings).glob("*.ring")
    assert seen(ring).header.stack_signal == 0
