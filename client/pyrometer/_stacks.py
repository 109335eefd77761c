"""Stack dumps on a signal, through faulthandler: its handler runs in C at once, even while Python hangs in NCCL."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO

_file: BinaryIO | None = None


def arrange(path: str, wanted: object) -> int:
    """From now on ``wanted`` (True: SIGUSR2, or a signal's number) writes all threads' stacks to ``path``.

    The number of the signal; 0 where another run of this process has arranged that already. Raises OSError,
    ValueError. It stays so until the process ends: taken back, a late signal would end the job.
    """
    global _file  # noqa: PLW0603  signals and their handlers are the process' own
    import faulthandler  # noqa: PLC0415  needed by few
    import signal  # noqa: PLC0415  1 ms

    number = int(signal.SIGUSR2) if wanted is True else int(wanted)  # type: ignore[call-overload]
    if _file is not None:
        return 0
    if signal.getsignal(number) is not signal.SIG_DFL:
        msg = f"signal {number} is in use by the job; give another: stacks=signal.SIGRTMIN"
        raise ValueError(msg)
    # Unbuffered, as the handler writes to the descriptor itself; one dump follows the other.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    file = open(os.open(path, flags, 0o644), "wb", buffering=0)  # noqa: SIM115  open as long as the process lives
    faulthandler.register(number, file=file, all_threads=True)
    _file = file
    return number
