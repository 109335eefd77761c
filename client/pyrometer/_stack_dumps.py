"""Stack dumps on a signal, through faulthandler: its handler runs in C at once, even while Python hangs in NCCL."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO

_file: BinaryIO | None = None


def dump_stacks_on_signal(path: str, signal_number: object, like: os.stat_result) -> int:
    """Have a signal write the stacks of all threads to ``path``, and return its number.

    The handler stays until the process ends: without it, a late signal would end the job.

    Args:
        path: the file to make.
        signal_number: True for SIGUSR2, or a signal's number.
        like: the ring's status: whoever may read that may read the stacks.

    Returns:
        The number of the signal; 0 where another run of this process has one already.

    Raises:
        OSError: the file can't be made.
        ValueError: no such signal, or the job has a handler for it.
        TypeError: ``signal_number`` is no number.
    """
    global _file  # noqa: PLW0603  signals and their handlers are the process' own
    import faulthandler  # noqa: PLC0415  needed by few
    import signal  # noqa: PLC0415  as above

    number = int(signal.SIGUSR2) if signal_number is True else int(signal_number)  # type: ignore[call-overload]
    if _file is not None:
        return 0
    if signal.getsignal(number) is not signal.SIG_DFL:
        raise ValueError(f"signal {number} is in use by the job; give another: stacks=signal.SIGRTMIN")
    # Unbuffered, as the handler writes to the descriptor itself; one dump follows the other.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    fd = os.open(path, flags, 0o600)
    if os.fstat(fd).st_gid != like.st_gid:
        os.fchown(fd, -1, like.st_gid)
    os.fchmod(fd, like.st_mode & 0o644)  # whatever the umask
    file = open(fd, "wb", buffering=0)  # noqa: SIM115  open as long as the process lives
    faulthandler.register(number, file=file, all_threads=True)
    _file = file
    return number
