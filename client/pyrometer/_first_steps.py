"""Find out at the first steps: the GPU's name, the run's page in a tracker, and whether anybody reads the ring."""

from __future__ import annotations

import fcntl
import os
import struct
import sys
import time
import weakref

from pyrometer import ring
from pyrometer._cuda import initialized_torch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pyrometer._run import Run

# The exporter looks for new rings every second; it gets ten.
_PATIENCE_NS = 10_000_000_000
# A loop that is faster than a hundred steps a second is observed no longer than this, and judged if the exporter has
# had time to find it.
_MOST_STEPS = 1000
_LEAST_NS = 2_500_000_000
_FLOCK = "hhqqi4x"  # struct flock of 64-bit Linux: type, whence, start, length, process


class Reading:
    """Who reads a ring, as far as its writer can see.

    The exporter holds a read lock on the header's first byte of each ring that it follows. The kernel names the process
    that holds it, so that another user can keep the message from being written, but not pass for the exporter. An
    exporter before that left a trace only in the file's access time.
    """

    def __init__(self, fd: int) -> None:
        self._accessed = os.fstat(fd).st_atime_ns

    def reader(self, fd: int) -> str:
        """Return who reads the ring, empty where nobody does.

        Raises:
            OSError: the file system has no locks.
        """
        query = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(fd, fcntl.F_GETLK, query))
        if kind == fcntl.F_UNLCK:
            return "an unknown process" if os.fstat(fd).st_atime_ns != self._accessed else ""
        return f"process {pid} of {_owner(pid)}" if pid > 0 else "a process outside this container"


def observer(
    run: Run,
    description: dict[str, object],
    say: Callable[[str], None],
    announce: Callable[[str], None],
    *,
    links: bool = False,
) -> Callable[[], bool]:
    """Return what is to be called after each of the first steps, as long as it returns True. It never raises.

    Args:
        run: The run.
        description: Its description.
        say: Writes one line, from one rank of a node.
        announce: Writes one line, from whichever rank.
        links: Whether to detect the run's pages in W&B and MLflow.
    """
    reading = Reading(run.descriptor)
    started, warmup = time.monotonic_ns(), int(str(description["warmup_steps"]))
    named, linked = [bool(description["gpu_model"])], [not links]
    reference = weakref.ref(run)  # a run that nobody holds any more is closed at once

    def observe() -> bool:
        try:
            run = reference()
            if run is None or run.disabled is not None:
                return False
            if not named[0]:
                named[0] = _write_gpu_model(run)
            if not linked[0]:
                linked[0] = _write_links(run)
            elapsed, steps = time.monotonic_ns() - started, run.steps_finished()
            if steps < warmup or (elapsed < _PATIENCE_NS and steps < _MOST_STEPS):
                return True
            if elapsed >= _LEAST_NS:
                reader = reading.reader(run.descriptor)
                if not reader:
                    say(_unread(run, steps))
                elif description["reporting"]:  # one line of a job, however many nodes it has
                    announce(f"read by {reader}")
        except Exception:  # noqa: BLE001  the promise of the client
            pass
        return False

    return observe


def _unread(run: Run, steps: int) -> str:
    return (
        f"nothing reads {run.path} after {steps} steps: is the node exporter running here, and does its --path.rings "
        "match? In a container, mount the host's folder (docs/training.md, Rings)"
    )


def _write_gpu_model(run: Run) -> bool:
    """Write the GPU's name into the header once CUDA is up; it may come up after ``start``."""
    torch = initialized_torch()
    if torch is None:
        return False
    run.write_text(ring.GPU_MODEL_SLOT, ring.GPU_MODEL_BYTES, str(torch.cuda.get_device_name()))
    return True


def _write_links(run: Run) -> bool:
    """Write the pages of the run that loaded trackers have open; they may be opened after ``start``."""
    if "wandb" not in sys.modules and "mlflow" not in sys.modules:
        return False
    from pyrometer._links import detected, packed  # noqa: PLC0415  needed by few

    pages = detected()
    if pages:
        run.write_text(ring.LINKS_SLOT, ring.LINKS_BYTES, packed(pages)[0])
    return bool(pages)


def _owner(pid: int) -> str:
    try:
        uid = os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return "an unknown user"
    pwd = sys.modules.get("pwd") or __import__("pwd")
    try:
        return str(pwd.getpwuid(uid).pw_name)
    except KeyError:
        return f"uid {uid}"
