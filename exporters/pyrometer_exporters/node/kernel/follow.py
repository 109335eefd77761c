"""Follows the kernel's log in a thread that sleeps until the kernel says something.

Every collector that reads the log has a descriptor of its own: ``/dev/kmsg`` keeps a place for each, so that they need
nothing of one another, and one that is switched off or fails takes no other along.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import threading
import time
from collections.abc import Callable
from pathlib import Path

from pyrometer_exporters.framework.worker import PartError, reason_of
from pyrometer_exporters.node.kernel.kmsg import Record, parse

log = logging.getLogger(__name__)

# The kernel's longest record is 8 KiB; one that doesn't fit the buffer would be lost.
READ_BYTES = 1 << 16
# How often to look into what can't wake us: plain files, and pipes that nobody writes to at the moment.
LOOK_SECONDS = 0.1
REOPEN_SECONDS = 10.0
# A log that is flooded may not take a core along; what the kernel overwrites meanwhile is counted as lost.
READS_PER_TURN = 2000
TURN_SECONDS = 0.1
# Fragments of a line that never ends.
LONGEST_LINE = 1 << 20


class Follower:
    """Hands each record to ``take``, in order and once, from its own thread.

    Args:
        path: ``/dev/kmsg``, or a plain file (which may be rotated or truncated) or FIFO in its format.
        take: called with each record.
        after: the sequence number of the last record that is known already; older ones are passed over.
        from_end: pass over all that is there when the log is first opened.
    """

    def __init__(
        self, path: Path, take: Callable[[Record], None], *, after: int | None = None, from_end: bool = False
    ) -> None:
        self._path = path
        self._take = take
        self._last = after
        self._read_before = False  # gaps between records count only from then on
        self._from_end = from_end
        self._rest = b""
        self._wake, self._waker = os.pipe()
        self._closed = threading.Event()
        self._settled = threading.Event()
        self._told = False
        self.error: PartError | None = None
        """Why the log can't be read now."""
        self.live = False
        """Whether what is read now happens now: all that was there at the start has been read."""
        self.lost = 0
        """Records that the kernel overwrote before they were read."""

    def start(self) -> None:
        """Begin to follow. Once."""
        threading.Thread(target=self._run, name="kmsg", daemon=True).start()

    def wait_settled(self, seconds: float) -> bool:
        """Wait until all that was there at the start is read, or it is known that it can't be; whether it is so."""
        return self._settled.wait(max(0.0, seconds))

    def close(self) -> None:
        """End the thread; doesn't wait for it."""
        if not self._closed.is_set():
            self._closed.set()
            os.close(self._waker)

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                with open(self._path, "rb", buffering=0, opener=_without_blocking) as file:
                    self._follow(file.fileno())
            except OSError as error:
                self.error = _why(error)
                self._settled.set()
            self._pause(REOPEN_SECONDS if self.error else 0.0)
        os.close(self._wake)

    def _follow(self, descriptor: int) -> None:
        """Read until the file was exchanged for another or the follower is closed."""
        if self._from_end:
            with contextlib.suppress(OSError):  # a pipe has no end to go to
                os.lseek(descriptor, 0, os.SEEK_END)
            self._from_end = False
        self.error, self._rest = None, b""
        while not self._closed.is_set():
            at_end = self._drain(descriptor)
            if at_end is None:
                self._pause(TURN_SECONDS)
                continue
            self.live = True
            self._settled.set()
            if not at_end:
                self._sleep_until_readable(descriptor)
            elif self._exchanged(descriptor):
                self._drain(descriptor)  # what came between the last read and the exchange
                return
            else:
                self._pause(LOOK_SECONDS)

    def _drain(self, descriptor: int) -> bool | None:
        """Read what there is. True: at the file's end; False: nothing more for now; None: enough for one turn."""
        reads = 0
        while reads < READS_PER_TURN or not self.live:
            reads += 1
            try:
                data = os.read(descriptor, READ_BYTES)
            except BlockingIOError:
                return False
            except BrokenPipeError:  # overrun: the next read gives the oldest record that is left
                continue
            if not data:
                return True
            self._split(data)
            if self._closed.is_set():
                return True
        return None

    def _split(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[:LONGEST_LINE]
        for line in lines:
            record = parse(line)
            if record is not None:
                self._hand_on(record)

    def _hand_on(self, record: Record) -> None:
        if self._last is not None and record.sequence <= self._last:
            return
        if self._read_before and self._last is not None:
            self.lost += record.sequence - self._last - 1
        self._last, self._read_before = record.sequence, True
        try:
            self._take(record)
        except Exception:
            if not self._told:  # once: it may be every line
                self._told = True
                log.exception("a line of the kernel's log could not be used: %r", record.text)

    def _exchanged(self, descriptor: int) -> bool:
        """Whether the path has another file now; a file that was truncated is begun anew."""
        try:
            now = os.stat(self._path)  # noqa: PTH116  as cheap as it gets
        except FileNotFoundError:
            return False  # between the two steps of a rotation
        own = os.fstat(descriptor)
        if (now.st_ino, now.st_dev) != (own.st_ino, own.st_dev):
            return True
        with contextlib.suppress(OSError):
            if own.st_size < os.lseek(descriptor, 0, os.SEEK_CUR):
                os.lseek(descriptor, 0, os.SEEK_SET)
                self._rest = b""
        return False

    def _sleep_until_readable(self, descriptor: int) -> None:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        poll.poll()
        # Messages come in groups; to read them together costs one wake-up instead of many.
        time.sleep(0.01)

    def _pause(self, seconds: float) -> None:
        self._closed.wait(seconds)


def _without_blocking(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def _why(error: OSError) -> PartError:
    if isinstance(error, PermissionError):
        detail = f"{error.filename or 'the log'}: not allowed; run as root or with CAP_SYSLOG, or pass --path.kmsg"
        return PartError("no_permission", detail)
    return PartError(reason_of(error), str(error))
