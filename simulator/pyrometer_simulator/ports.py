"""Ports for programs that others have to know before they listen, or that can't tell which one they were given."""

from __future__ import annotations

import secrets
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pyrometer_simulator.demo.processes import answers
from pyrometer_simulator.stack.errors import StackError

# What the kernel gives out itself: to whoever asks for any port (0), and to each outgoing connection (man 7 ip).
GIVEN_OUT = Path("/proc/sys/net/ipv4/ip_local_port_range")
USUALLY = "32768 60999"  # where that can't be read
LOWEST = 10_000  # below stand the ports of programs that people know
TRIES = 3


def free_port() -> int:
    """A loopback port that nobody listens on and that the kernel gives to nobody.

    A port that it had given (0) could be an outgoing connection's by the time that the program listens: on a busy
    machine one start of the demo in some dozens failed of that.
    """
    ports = _kept_back()
    while not _is_free(port := secrets.choice(ports)):  # not `random`, which tests begin alike
        pass
    return port


def _kept_back() -> Sequence[int]:
    try:
        low, high = map(int, GIVEN_OUT.read_text().split())
    except (OSError, ValueError):
        low, high = map(int, USUALLY.split())
    return [*range(LOWEST, low), *range(high + 1, 65536)] or range(LOWEST, 65536)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def serving(
    start: Callable[[int], subprocess.Popen[Any]], path: str = "/-/ready", seconds: float = 40.0
) -> tuple[subprocess.Popen[Any], int]:
    """A program that answers 200 on its loopback port, and that port; on another where it ended by itself.

    Args:
        start: starts it on this port.
        path: what it answers when it is ready.
        seconds: for which it is waited for.

    Raises:
        StackError: it did not answer, or ended each time; it does not run any more.
    """
    for _ in range(TRIES):
        port = free_port()
        process = start(port)
        try:
            if _comes_up(process, f"http://127.0.0.1:{port}{path}", seconds):
                return process, port
        except BaseException:  # an interrupt, too, must leave nothing running
            process.kill()
            process.wait()
            raise
    msg = f"{process.args!r} ended with status {process.returncode}, {TRIES} times"
    raise StackError(msg)


def _comes_up(process: subprocess.Popen[Any], url: str, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not answers(url):
        if process.poll() is not None:
            return False
        if time.monotonic() > deadline:
            raise StackError(f"{url} did not answer within {seconds:.0f} s")
        time.sleep(0.05)
    return process.poll() is None  # else something else answers there
