"""The one place that starts programs: ``squeue`` and ``sinfo``, each with a deadline and a limit to what it may say."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess  # Slurm has no other door that works on every cluster: slurmrestd is often not set up
import time
from collections.abc import Sequence
from typing import IO, Protocol

from pyrometer_exporters.framework.outcome import LATE, PartError

COMMAND_SECONDS = 20.0
# A job is 5 to 10 kB of JSON, which takes five times as much memory while it is read: 4,000 jobs, 200 MB for a moment.
MAX_ANSWER_BYTES = 32 << 20
_CHUNK = 1 << 16


class Slurm(Protocol):
    """What is asked of Slurm. Both raise PartError."""

    def jobs(self) -> bytes:
        """The queue as JSON, as ``squeue --json`` prints it."""

    def nodes(self) -> bytes:
        """The nodes as JSON, as ``sinfo --Node --json`` prints it."""


class SlurmCommands:
    """Slurm through its own commands, found on PATH unless given with a path."""

    def __init__(self, squeue: str, sinfo: str, partitions: str = "", seconds: float = COMMAND_SECONDS) -> None:
        only = [f"--partition={partitions}"] if partitions else []
        self._squeue = [squeue, "--all", "--json", *only]
        self._sinfo = [sinfo, "--Node", "--all", "--json", *only]
        self._seconds = seconds

    def jobs(self) -> bytes:
        """See :class:`Slurm`."""
        return output(self._squeue, self._seconds)

    def nodes(self) -> bytes:
        """See :class:`Slurm`."""
        return output(self._sinfo, self._seconds)


def output(command: Sequence[str], seconds: float) -> bytes:
    """What the command prints. Raises PartError where it is missing, fails, hangs or says too much."""
    try:
        process = subprocess.Popen(  # a session of its own, so that a wrapper's children end with it
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
    except FileNotFoundError:
        raise PartError("no_slurm", f"no {command[0]} here: nothing is known about the queue") from None
    except OSError as error:
        raise PartError("not_started", f"{command[0]}: {error.strerror}") from None
    try:
        said, complained = _listen(process, time.monotonic() + seconds)
    except PartError as error:
        raise PartError(error.reason, f"{command[0]} {error.detail}") from None
    finally:
        _end(process)
    if process.returncode != 0:
        lines = complained.decode(errors="replace").strip().splitlines()
        raise PartError("failed", f"{command[0]} ended with {process.returncode}: {lines[0] if lines else 'silent'}")
    return said


def _listen(process: subprocess.Popen[bytes], until: float) -> tuple[bytes, bytes]:
    """Both outputs to their ends; raises PartError when it is ``until`` or they are too long."""
    heard: dict[int, bytearray] = {}
    with selectors.DefaultSelector() as ready:
        for stream in (process.stdout, process.stderr):
            heard[_number(stream)] = bytearray()
            ready.register(_number(stream), selectors.EVENT_READ)
        while ready.get_map():
            left = until - time.monotonic()
            if left <= 0:
                raise PartError(LATE, "did not answer in time")
            for key, _ in ready.select(left):
                data = os.read(key.fd, _CHUNK)
                heard[key.fd] += data
                if not data:
                    ready.unregister(key.fd)
            if sum(map(len, heard.values())) > MAX_ANSWER_BYTES:
                raise PartError(
                    "too_large", f"says more than {MAX_ANSWER_BYTES >> 20} MiB: see --collector.slurm.partitions"
                )
    _wait(process, until)
    said, complained = heard.values()
    return bytes(said), bytes(complained)


def _number(stream: IO[bytes] | None) -> int:
    return -1 if stream is None else stream.fileno()


def _wait(process: subprocess.Popen[bytes], until: float) -> None:
    try:
        process.wait(max(0.1, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise PartError(LATE, "said all and did not end") from None


def _end(process: subprocess.Popen[bytes]) -> None:
    """Close the pipes, and end the whole session; a process that the kernel holds is left to it."""
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1.0)
