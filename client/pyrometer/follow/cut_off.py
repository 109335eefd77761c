"""Cut off a computation of one call that takes too long, such as a regular expression that tries every way to fail."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


class CutOff(Exception):  # noqa: N818 - no error: the caller asked for it
    """The computation took longer than it may."""


@contextlib.contextmanager
def cut_off(seconds: float) -> Iterator[None]:
    """Raise CutOff in the block after so many seconds of this process's CPU; in the main thread, which has signals.

    Raises:
        CutOff: the time is over.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGVTALRM, _raise)
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _raise(*_: object) -> None:
    raise CutOff
