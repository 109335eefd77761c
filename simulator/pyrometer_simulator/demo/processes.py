"""Starting and ending the programs of the demo: each by its own handle, with its output kept in a file."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from pyrometer_simulator.http_call import call

# A cold start of Python with pandas on a busy two-core machine took 6 s; Prometheus and Alertmanager take 1-2 s.
READY_SECONDS = 45.0
END_SECONDS = 5.0


class DemoError(Exception):
    """The demo can't go on; the message is one line: what, where, what to do."""


class Processes:
    """The programs that the demo started; leaving the ``with`` ends them, and no others."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._dispensable: set[str] = set()

    def __enter__(self) -> Processes:  # noqa: PYI034  typing.Self needs Python 3.11
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.end_all()

    def start(
        self,
        name: str,
        command: Sequence[str],
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        *,
        dispensable: bool = False,
    ) -> subprocess.Popen[bytes]:
        """Start a program; its output goes to ``<logs>/<name>.log``. A dispensable one may end before the demo does."""
        with (self._logs / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                cwd=cwd,
                start_new_session=True,  # Ctrl-C ends the demo, which ends its programs in order
            )
        self._running[name] = process
        if dispensable:
            self._dispensable.add(name)
        return process

    def check(self, waited_for: Collection[str] = ()) -> None:
        """Raise DemoError if a program has ended on its own; a dispensable one only while it is waited for."""
        for name, process in self._running.items():
            if (name in waited_for or name not in self._dispensable) and process.poll() is not None:
                msg = f"{name} ended with status {process.returncode}: {self.last_line(name)}"
                raise DemoError(msg)

    def wait_until_ready(self, urls: Mapping[str, str], seconds: float = READY_SECONDS) -> None:
        """Wait until all URLs (by program name) answer 200."""
        deadline = time.monotonic() + seconds
        waiting = dict(urls)
        while waiting:
            self.check(waiting)
            waiting = {name: url for name, url in waiting.items() if not answers(url)}
            if waiting and time.monotonic() > deadline:
                name = next(iter(waiting))
                msg = f"{name} did not answer within {seconds:.0f} s: {self.last_line(name)}"
                raise DemoError(msg)
            if waiting:
                time.sleep(0.1)

    def end(self, name: str) -> None:
        """End one program: SIGTERM, then SIGKILL."""
        process = self._running.pop(name)
        _signal(process, signal.SIGTERM)
        _wait(process, END_SECONDS)

    def end_all(self) -> None:
        """End all programs, side by side."""
        processes = list(self._running.values())
        self._running.clear()
        for process in processes:
            _signal(process, signal.SIGTERM)
        deadline = time.monotonic() + END_SECONDS
        for process in processes:
            _wait(process, deadline - time.monotonic())

    def last_line(self, name: str) -> str:
        """Return the last line that a program wrote, and where the others are."""
        path = self._logs / f"{name}.log"
        lines = path.read_text(errors="replace").strip().splitlines()
        return f"{lines[-1] if lines else 'no output'} (all of it: {path})"


def answers(url: str) -> bool:
    """Return whether a URL answers 200 now."""
    try:
        return call(url, seconds=2).status == 200
    except OSError:
        return False


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)


def _wait(process: subprocess.Popen[bytes], seconds: float) -> None:
    try:
        process.wait(max(0.1, seconds))
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
