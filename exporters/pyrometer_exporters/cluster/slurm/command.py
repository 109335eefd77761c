"""Run ``squeue`` and ``sinfo``, each with a deadline and a limit of its output; nothing else starts programs."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess  # no other interface works on every cluster: slurmrestd is often not set up
import time
from collections.abc import Callable, Sequence
from typing import IO, Protocol

from pyrometer_exporters.framework.outcome import LATE, PartError

COMMAND_SECONDS = 20.0
# For what is kept whole: sinfo's answer is 3 kB a node, which takes five times as much memory while it is read.
MAX_ANSWER_BYTES = 32 << 20
# For what is read as it comes: a job is 5 to 10 kB of JSON, so these are 100,000 jobs.
MAX_STREAM_BYTES = 1 << 30
TOO_LARGE = "printed too much: see --collector.slurm.partitions and --collector.slurm.users"
_CHUNK = 1 << 16


class Slurm(Protocol):
    """The queries to Slurm. Both raise PartError."""

    def jobs(self, take: Callable[[bytes], None], names: Sequence[str] = ()) -> None:
        """Have ``take`` take the queue, or its jobs of these names, in pieces of what ``squeue --json`` prints."""
        ...

    def nodes(self) -> bytes:
        """Return the nodes as JSON, as ``sinfo --Node --json`` prints it."""
        ...


class SlurmCommands:
    """Slurm through its own commands, found on PATH unless given with a path."""

    def __init__(
        self, squeue: str, sinfo: str, partitions: str = "", users: str = "", seconds: float = COMMAND_SECONDS
    ) -> None:
        only = [f"--partition={partitions}"] if partitions else []
        # All states: how a job has ended is known for MinJobAge, 5 minutes by default. Older releases list it unasked.
        self._squeue = [squeue, "--all", "--states=all", "--json", *only, *([f"--user={users}"] if users else [])]
        self._sinfo = [sinfo, "--Node", "--all", "--json", *only]
        self._seconds = seconds

    def jobs(self, take: Callable[[bytes], None], names: Sequence[str] = ()) -> None:
        """See :class:`Slurm`."""
        by_name = [f"--name={','.join(names)}"] if names else []
        output([*self._squeue, *by_name], self._seconds, take)

    def nodes(self) -> bytes:
        """See :class:`Slurm`."""
        return output(self._sinfo, self._seconds)


def output(command: Sequence[str], seconds: float, take: Callable[[bytes], None] | None = None) -> bytes:
    """Return the output of a command; nothing where ``take`` takes it in pieces as it comes.

    Raises:
        PartError: It is missing, fails, hangs or prints too much, or ``take`` raises one.
    """
    try:
        process = subprocess.Popen(  # a session of its own, so that a wrapper's children end with it
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
    except FileNotFoundError:
        raise PartError("no_slurm", f"{command[0]} not found: nothing is known about the queue") from None
    except OSError as error:
        raise PartError("not_started", f"{command[0]}: {error.strerror}") from None
    try:
        output, errors = _read_both(process, time.monotonic() + seconds, take)
    except PartError as error:
        raise PartError(error.reason, f"{command[0]} {error.detail}") from None
    finally:
        _end(process)
    if process.returncode != 0:
        lines = errors.decode(errors="replace").strip().splitlines()
        raise PartError("failed", f"{command[0]} ended with {process.returncode}: {lines[0] if lines else 'silent'}")
    return output


def _read_both(
    process: subprocess.Popen[bytes], until: float, take: Callable[[bytes], None] | None
) -> tuple[bytes, bytes]:
    """Return both outputs, read to their ends; the first is empty where ``take`` takes it.

    Raises:
        PartError: The deadline ``until`` has passed, or they are too long.
    """
    received: dict[int, bytearray] = {}
    passing = _Stream(take) if take is not None else None
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
                if passing is not None and key.fd == _number(process.stdout):
                    passing.pass_on(data)
                else:
                    received[key.fd] += data
                if not data:
                    ready.unregister(key.fd)
            if sum(map(len, received.values())) > MAX_ANSWER_BYTES:
                raise PartError("too_large", TOO_LARGE)
    _wait(process, until)
    if passing is not None and passing.wrong is not None and process.returncode == 0:
        raise passing.wrong
    output, errors = received.values()
    return bytes(output), bytes(errors)


class _Stream:
    """Passes on what a command prints, until that can't be taken: one that fails may print anything first."""

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self.wrong: PartError | None = None
        self._take = take
        self._size = 0

    def pass_on(self, data: bytes) -> None:
        """Pass on a piece.

        Raises:
            PartError: ``too_large``.
        """
        self._size += len(data)
        if self.wrong is None:
            try:
                self._take(data)
            except PartError as error:
                self.wrong = error
        if self._size > (MAX_STREAM_BYTES if self.wrong is None else MAX_ANSWER_BYTES):
            raise PartError("too_large", TOO_LARGE)


def _number(stream: IO[bytes] | None) -> int:
    return -1 if stream is None else stream.fileno()


def _wait(process: subprocess.Popen[bytes], until: float) -> None:
    try:
        process.wait(max(0.1, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise PartError(LATE, "closed its output but did not exit") from None


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
