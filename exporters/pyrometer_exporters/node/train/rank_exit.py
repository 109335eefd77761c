"""How a rank's process ended: what Python wrote into the ring, or what the kernel knows of the process.

Python knows an exception or an exit status. A signal leaves it no time, and only the parent is told which; but Linux
6.15 and later keep the status of a process that has been waited for, for those who hold it by a pidfd
(``PIDFD_GET_INFO``, include/uapi/linux/pidfd.h). Since Linux 5.3 a pidfd also wakes who waits for the end: the ranks of
a job end within moments of each other, and the first of them is the one to look at.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import re
import select
import signal
import struct
import time
from pathlib import Path

from pyrometer import ring

# One with more open files is looked at in part.
_MOST_FILES = 4096
# Anybody may hold locks by the hundred thousand; the kernel takes seconds to list those.
LOCKS_SECONDS = 0.1
_LOCKS_BYTES = 1 << 16
_GPU_DEVICE = re.compile(r"/dev/nvidia[0-9]+")
_SINCE_LINUX = (6, 15)
# struct pidfd_info, its first published size: mask, cgroup, eleven ids, the status as wait(2) returns it.
_INFO = struct.Struct("=QQ11Ii")
_GET_INFO = 3 << 30 | _INFO.size << 16 | 0xFF << 8 | 11
_EXIT = 1 << 3


class HeldProcess:
    """A rank's process, held by a pidfd until its end is known.

    Attributes:
        pid: its id on this node.
        ended_at: monotonic time at which it was seen to end, None before.
    """

    def __init__(self, pid: int) -> None:
        """Hold a process.

        Raises:
            OSError: it is gone, or belongs to another PID namespace.
        """
        self._fd = os.pidfd_open(pid)
        self.pid = pid
        self.ended_at: float | None = None

    def uses_gpu(self, procfs: Path) -> bool:
        """Return whether it has a GPU of NVIDIA's open; False where we may not look."""
        with contextlib.suppress(OSError), os.scandir(procfs / str(self.pid) / "fd") as entries:
            for entry in itertools.islice(entries, _MOST_FILES):
                with contextlib.suppress(OSError):
                    if _GPU_DEVICE.fullmatch(os.readlink(entry.path)):  # noqa: PTH115  a path costs more
                        return True
        return False

    def fileno(self) -> int:
        """Return the descriptor; -1 once it is released."""
        return self._fd

    def end(self) -> str:
        """Return how it ended, ``SIGKILL`` or ``exit status 1``; empty while that is not known."""
        if self._fd < 0:
            return ""
        info = bytearray(_INFO.pack(_EXIT, *[0] * 13))
        try:
            fcntl.ioctl(self._fd, _GET_INFO, info)
        except OSError:
            return ""
        mask, *_, status = _INFO.unpack(info)
        return words_of(status) if mask & _EXIT else ""

    def close(self) -> None:
        """Release it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Ends:
    """Waits for the ends of processes. One thread waits; others may add processes and wake it."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._epoll.register(self._wake, select.EPOLLIN)

    def add(self, process: HeldProcess) -> None:
        """Wait for this process as well, until it ends or is released."""
        with contextlib.suppress(OSError):  # no more memory for it: its end is found a little later
            self._epoll.register(process.fileno(), select.EPOLLIN | select.EPOLLONESHOT)

    def wait(self, seconds: float) -> set[int]:
        """Return the descriptors of processes that have ended, after at most so many seconds."""
        return {fd for fd, _ in self._epoll.poll(seconds)} - {self._wake}

    def wake(self) -> None:
        """End the wait under way and all later ones at once."""
        os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """Release everything; nobody may be waiting any more."""
        self._epoll.close()
        os.close(self._wake)


def words_of(status: int) -> str:
    """Return a status as wait(2) has it in words.

    >>> words_of(9), words_of(256)
    ('SIGKILL', 'exit status 1')
    """
    number = status & 0x7F
    if not number:
        return f"exit status {status >> 8 & 0xFF}"
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def told(written: str, status: str) -> str:
    """Return the better of what the ring says and what the kernel says.

    >>> told("ValueError", "exit status 1"), told("signal or os._exit", "SIGSEGV"), told("signal or os._exit", "")
    ('ValueError', 'SIGSEGV', 'signal or os._exit')
    """
    return written if written and written != ring.SUDDEN_EXIT.decode() else status or written


def can_hold() -> bool:
    """Return whether this kernel keeps the status of processes that are held."""
    release = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return release is not None and (int(release[1]), int(release[2])) >= _SINCE_LINUX


def hold(procfs: Path, identity: tuple[int, int], until: float | None = None) -> HeldProcess | None:
    """Return the process that holds the lock of the ring with this device and inode; None where there is none."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # no pidfd_open in this Python
        pid = lock_holder(procfs, identity, until)
        return None if pid is None else HeldProcess(pid)
    return None


def lock_holder(procfs: Path, identity: tuple[int, int], until: float | None = None) -> int | None:
    """Return the process that holds a ring's lock, by its id on the host: in a container it has another.

    None also where the list is so long that it was not read to its end by ``until``, a monotonic time.

    Raises:
        OSError: the kernel's list can't be read.
    """
    device, number = identity
    inode = f"{os.major(device):02x}:{os.minor(device):02x}:{number}"
    until = time.monotonic() + LOCKS_SECONDS if until is None else until
    with (procfs / "locks").open(encoding="ascii") as list_of_locks:
        while time.monotonic() < until and (lines := list_of_locks.readlines(_LOCKS_BYTES)):
            for line in lines:
                if inode in line:
                    fields = line.split()
                    if len(fields) > 5 and fields[1] == "FLOCK" and fields[5] == inode and int(fields[4]) > 0:
                        return int(fields[4])
    return None
