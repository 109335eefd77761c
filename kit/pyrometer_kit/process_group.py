"""Stop programs together with their children."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from pyrometer_kit.proc_stat import read_stat

GRACE_SECONDS: Final = 10.0
"""Time to clean up between SIGTERM and SIGKILL: ``srun`` ends its steps on other hosts, ``fio`` removes its file."""
_POLL_SECONDS: Final = 0.02


def end(processes: Iterable[subprocess.Popen[bytes]], grace: float = GRACE_SECONDS) -> None:
    """Ask the process groups of running programs to exit, and kill those that have not after ``grace`` seconds.

    Each program must lead a group of its own (``start_new_session=True``). One that hangs in the kernel is left behind.
    """
    running = [process for process in processes if process.poll() is None]
    try:
        for process in running:
            _signal(process, signal.SIGTERM)
        until = time.monotonic() + grace
        while any(_lives(process) for process in running) and time.monotonic() < until:
            time.sleep(_POLL_SECONDS)
    finally:  # an interrupt while it waits too
        for process in running:
            _signal(process, signal.SIGKILL)
    for process in running:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1.0)


def _lives(process: subprocess.Popen[bytes]) -> bool:
    """Return whether a process of the group is left: a shell may exit before the program that it started."""
    return process.poll() is None or (_signal(process, 0) and _is_more_than_zombies(process.pid))


def _is_more_than_zombies(group: int) -> bool:
    """Return whether a process of the group runs: in a container, zombies may never be reaped."""
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            status = read_stat("/proc", path.name)
            if status.group == group and status.state != "Z":
                return True
    return False


def _signal(process: subprocess.Popen[bytes], number: int) -> bool:
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return False
    except PermissionError:  # of another user by now
        return process.returncode is None
    return True
