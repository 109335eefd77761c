"""Run ``squeue`` and ``sinfo``, each with a deadline and a limit of its output; nothing else starts programs."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess  # no other interface works on every cluster: slurmrestd is often not set up
import time
from collections.abc import Sequence
from typing import IO, Protocol

from pyrometer_exporters.framework.outcome import LATE, PartError

COMMAND_SECONDS = 20.0
# A job is 5 to 10 kB of JSON, which takes five times as much memory while it is read: 4,000 jobs, 200 MB for a moment.
MAX_ANSWER_BYTES = 32 << 20
_CHUNK = 1 << 16


class Slurm(Protocol):
    """The queries to Slurm. Both raise PartError."""

    def jobs(self) -> bytes:
        """Return the queue as JSON, as ``squeue --json`` prints it."""
        ...

    def nodes(self) -> bytes:
        """Return the nodes as JSON, as ``sinfo --Node --json`` prints it."""
        ...


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
    """Return the output of a command.

    Raises:
        PartError: It is missing, fails, hangs or prints too much.
    """
    try:
        process = subprocess.Popen(  # a session of its own, so that a wrapper's children end with it
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
    except FileNotFoundError:
        raise PartError("no_slurm", f"no {command[0]} here: nothing is known about the queue") from None
    except OSError as error:
        raise PartError("not_started", f"{command[0]}: {error.strerror}") from None
    try:
        output, errors = _read_both(process, time.monotonic() + seconds)
    except PartError as error:
        raise PartError(error.reason, f"{command[0]} {error.detail}") from None
    finally:
        _end(process)
    if process.returncode != 0:
        lines = errors.decode(errors="replace").strip().splitlines()
        raise PartError("failed", f"{command[0]} ended with {process.returncode}: {lines[0] if lines else 'silent'}")
    return output


def _read_both(process: subprocess.Popen[bytes], until: float) -> tuple[bytes, bytes]:
    """Return both outputs, read to their ends.

    Raises:
        PartError: The deadline ``until`` has passed, or they are too long.
    """
    received: dict[int, bytearray] = {}
    with selectors.DefaultSelector() as ready:
        for stream in (process.stdout, process.stderr):
            received[_number(stream)] = bytearray()
            ready.register(_number(stream), selectors.EVENT_READ)
        while ready.get_map():
            left = until - time.monotonic()
            if left <= 0:
                raise PartError(LATE, "did not answer in time")
            for key, _ in ready.select(left):
                data = os.read(key.fd, _CHUNK)
                received[key.fd] += data
                if not data:
                    ready.unregister(key.fd)
            if sum(map(len, received.values())) > MAX_ANSWER_BYTES:
                raise PartError(
                    "too_large", f"printed more than {MAX_ANSWER_BYTES >> 20} MiB: see --collector.slurm.partitions"
                )
    _wait(process, until)
    output, errors = received.values()
    return bytes(output), bytes(errors)


def _number(stream: IO[bytes] | None) -> int:
    return -1 if stream is None else stream.fileno()


def _wait(process: subprocess.Popen[bytes], until: float) -> None:
    try:
        process.wait(max(0.1, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise PartError(LATE, "closed its output and did not end") from None


def _end(process: subprocess.Popen[bytes]) -> None:
    """Close the pipes and kill the whole session; a process that hangs in the kernel is left behind."""
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1.0)
