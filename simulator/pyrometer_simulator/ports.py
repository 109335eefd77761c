"""Reserved ports, for programs whose port others must know before they listen."""

from __future__ import annotations

import contextlib
import secrets
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pyrometer_simulator.demo.processes import answers
from pyrometer_simulator.stack.errors import StackError

# The ports that the kernel assigns: to a bind of port 0, and to each outgoing connection (man 7 ip).
EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
USUAL_EPHEMERAL_RANGE = "32768 60999"
LOWEST = 10_000  # below are well-known ports
TRIES = 3


def free_port() -> int:
    """Reserve a loopback port until this process ends, and return it.

    The port stays bound here, without listening, so that neither the kernel nor another caller of this function assigns
    it to anybody else. A program can listen on it nevertheless if it sets SO_REUSEADDR, as servers usually do; until
    then connections are refused.
    """
    ports = _candidates()
    while not _reserve(port := secrets.choice(ports)):  # not `random`, whose seed may be fixed by a test
        pass
    return port


def _candidates() -> Sequence[int]:
    """Return the ports outside of the kernel's range, or all if there are none."""
    try:
        low, high = map(int, EPHEMERAL_RANGE.read_text().split())
    except (OSError, ValueError):
        low, high = map(int, USUAL_EPHEMERAL_RANGE.split())
    return [*range(LOWEST, low), *range(high + 1, 65536)] or range(LOWEST, 65536)


def _reserve(port: int) -> bool:
    reservation = socket.socket()
    try:
        reservation.bind(("127.0.0.1", port))
    except OSError:
        reservation.close()
        return False
    # Only now: nobody else may hold the port, but the program may bind it, too.
    reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reservation.detach()  # open until this process ends; child processes don't inherit it
    return True


def serving(
    start: Callable[[int], subprocess.Popen[Any]], path: str = "/-/ready", seconds: float = 40.0
) -> tuple[subprocess.Popen[Any], int]:
    """Start a program and wait until it answers 200; return it and its port. Retry on another port if it exits.

    Args:
        start: starts the program on a port.
        path: the path that answers once the program is ready.
        seconds: how long to wait for each start.

    Raises:
        StackError: the program did not answer in time, or exited each time; it is no longer running.
    """
    ended = ""
    for _ in range(TRIES):
        port = free_port()
        process = start(port)
        try:
            if _wait_until_ready(process, f"http://127.0.0.1:{port}{path}", seconds):
                return process, port
        except BaseException:  # also on an interrupt nothing may keep running
            process.kill()
            process.wait()
            raise
        ended = f"{process.args!r} ended with status {process.returncode}"
    msg = f"{ended}, {TRIES} times"
    raise StackError(msg)


@contextlib.contextmanager
def served(
    start: Callable[[int], subprocess.Popen[Any]], path: str = "/-/ready", seconds: float = 40.0
) -> Iterator[tuple[subprocess.Popen[Any], int]]:
    """Run a program as :func:`serving` does, and end it afterwards.

    Raises:
        StackError: as `serving`.
    """
    process, port = serving(start, path, seconds)
    with process:
        try:
            yield process, port
        finally:
            process.terminate()


def _wait_until_ready(process: subprocess.Popen[Any], url: str, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not answers(url):
        if process.poll() is not None:
            return False
        if time.monotonic() > deadline:
            raise StackError(f"{url} did not answer within {seconds:.0f} s")
        time.sleep(0.05)
    return process.poll() is None  # else another program answered
