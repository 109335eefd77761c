"""An exporter as a real process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pyrometer_simulator.http_call import call


class Process:
    """An exporter as operators run it."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self.popen = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment}
        )
        self.log: list[str] = []
        self.port = 0

    def wait_ready(self) -> Process:
        assert self.popen.stderr is not None
        for line in self.popen.stderr:
            self.log.append(line)
            found = re.search(r"listening on [^ ]*?:(\d+)", line)
            if found:
                self.port = int(found[1])
                return self
        raise AssertionError("".join(self.log))

    def get(self, path: str, **headers: str) -> tuple[int, str]:
        reply = call(f"http://127.0.0.1:{self.port}{path}", **headers)
        return reply.status, reply.body.decode()

    def terminate(self, number: int = signal.SIGTERM) -> tuple[int, float]:
        """Exit status and how long the end took."""
        began = time.monotonic()
        self.popen.send_signal(number)
        _, rest = self.popen.communicate(timeout=20)
        self.log.append(rest)
        return self.popen.returncode, time.monotonic() - began

    def close(self) -> None:
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.communicate()


@pytest.fixture
def exporter(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Start the node exporter on a free port with nothing to read; further flags are appended."""
    started: list[Process] = []

    def start(*flags: str, command: tuple[str, ...] = ("-m", "pyrometer_exporters.node.main")) -> Process:
        state = () if any(flag.startswith("--path.state") for flag in flags) else (f"--path.state={tmp_path}/state",)
        nothing = [f"--path.{name}={tmp_path}/nothing" for name in ("sysfs", "procfs", "rings")]
        full = [sys.executable, *command, "--web.listen-address=127.0.0.1:0", *nothing, *state, *flags]
        process = Process(full, {"PYTHONDEVMODE": "0"})
        started.append(process)
        return process

    yield start
    for process in started:
        process.close()
