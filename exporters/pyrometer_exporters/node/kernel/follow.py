"""Follow the kernel's log in a thread that sleeps until the kernel writes a record.

Every collector that reads the log has a descriptor of its own: ``/dev/kmsg`` keeps a position for each, so that they
are independent, and one that is disabled or fails doesn't affect the others.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import select
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path

from pyrometer_exporters.framework.outcome import PartError, reason_of
from pyrometer_exporters.node.kernel.kmsg import Record, no_kernel_log, parse

log = logging.getLogger(__name__)

# The kernel's longest record is 8 KiB; one that doesn't fit the buffer would be lost.
READ_BYTES = 1 << 16
# How often to check files that can't wake us: plain files, and pipes without a writer.
LOOK_SECONDS = 0.1
REOPEN_SECONDS = 10.0
# A flooded log must not use up a core; records that the kernel overwrites meanwhile are counted as lost.
READS_PER_TURN = 2000
TURN_SECONDS = 0.1
# CPU time for each turn: a storm gets less than a third of a core, which is enough for 10,000 Xids a second
# (benchmarks/bench_xid_storm.py); the kernel's log holds less than a second of them.
WORK_SECONDS = 0.04
# How often to say that a flooded log loses records; a counter says how many.
TELL_LOST_SECONDS = 600.0
# The most that a pipe holds unless an administrator has raised /proc/sys/fs/pipe-max-size.
PIPE_BYTES = 1 << 20
# So many lines of another format, and no record before them: a file that was empty at first, and is a syslog's.
MOST_FOREIGN = 100
# Fragments of a line that never ends.
LONGEST_LINE = 1 << 20


class Follower:
    """Hands each record to ``take``, in order and once, from its own thread.

    Args:
        path: ``/dev/kmsg``, or a plain file (which may be rotated or truncated) or FIFO in its format.
        take: called with each record.
        after: the sequence number of the last record that is known already; older ones are skipped.
        from_end: skip all records that exist when the log is first opened.
    """

    def __init__(
        self, path: Path, take: Callable[[Record], None], *, after: int | None = None, from_end: bool = False
    ) -> None:
        self._path = path
        self._take = take
        self._last = after
        self._read_before = False  # gaps between records count only from then on
        self._bytes = 0
        self._foreign = 0.0
        self._told_lost_at = -math.inf
        self._from_end = from_end
        self._rest = b""
        self._wake, self._waker = os.pipe()
        self._closed = threading.Event()
        self._settled = threading.Event()
        self._told = False
        self.error: PartError | None = None
        """The reason why the log can't be read now."""
        self.live = False
        """True once all records from before the start are read: later ones are new."""
        self.lost = 0
        """Records that the kernel overwrote before they were read."""

    def start(self) -> None:
        """Begin to follow. Once."""
        threading.Thread(target=self._run, name="kmsg", daemon=True).start()

    def wait_settled(self, seconds: float) -> bool:
        """Wait until all records from before the start are read, or the log turned out to be unreadable.

        Return whether that happened in time. A log that is flooded meanwhile doesn't delay this: later records are new.
        """
        return self._settled.wait(max(0.0, seconds))

    def close(self) -> None:
        """End the thread, without waiting for it."""
        if not self._closed.is_set():
            self._closed.set()
            os.close(self._waker)

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                with open(self._path, "rb", buffering=0, opener=_without_blocking) as file:
                    self._refuse(file.fileno())
                    self._follow(file.fileno())
            except (PartError, OSError) as error:
                self.error = error if isinstance(error, PartError) else _why(error)
                self._settled.set()
            self._pause(REOPEN_SECONDS if self.error else 0.0)
        os.close(self._wake)

    def _refuse(self, descriptor: int) -> None:
        wrong = no_kernel_log(self._path, descriptor)
        if wrong is not None:
            raise PartError("no_kernel_log", wrong)

    def _follow(self, descriptor: int) -> None:
        """Read until the file was exchanged for another or the follower is closed."""
        with contextlib.closing(_Backlog(self._path, descriptor)) as backlog:
            self._catch_up(descriptor, backlog)
        while not self._closed.is_set():
            at_end = self._drain(descriptor)
            if at_end is None:
                self._pause(TURN_SECONDS)
            elif not at_end:
                self._sleep_until_readable(descriptor)
            elif self._exchanged(descriptor):
                while self._drain(descriptor) is None:  # what came between the last read and the exchange
                    pass
                return
            else:
                self._pause(LOOK_SECONDS)

    def _catch_up(self, descriptor: int, backlog: _Backlog) -> None:
        """Read the existing records; when the log is opened for the first time, as fast as possible."""
        at_its_end = self._from_end and _skipped(descriptor)
        if self.error is not None and not self.live:
            self._settled.clear()  # the existing records are yet to be read
        self.error, self._rest, self._from_end = None, b"", False
        self._bytes, self._foreign = 0, 0.0
        while not (self.live or at_its_end or self._closed.is_set()):
            if self._drain(descriptor) is not None or backlog.is_read(self._bytes, self._last):
                break
        self.live = True
        self._settled.set()

    def _drain(self, descriptor: int) -> bool | None:
        """Read the available records. True: at the file's end; False: nothing more now; None: enough for one turn."""
        enough = time.thread_time() + WORK_SECONDS if self.live else math.inf
        for _ in range(READS_PER_TURN):
            if time.thread_time() > enough:
                return None
            try:
                data = os.read(descriptor, READ_BYTES)
            except BlockingIOError:
                return False
            except BrokenPipeError:  # overrun: the next read gives the oldest record that is left
                continue
            if not data:
                return True
            self._bytes += len(data)
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
                self._foreign = -math.inf
                self._hand_on(record)
            elif line.strip():
                self._foreign += 1
                if self._foreign >= MOST_FOREIGN:
                    raise PartError("no_kernel_log", f"{self._path} is no kernel log: no line is such as 6,1,0,-;text")

    def _hand_on(self, record: Record) -> None:
        if self._last is not None and record.sequence <= self._last:
            return
        if self._read_before and self._last is not None and record.sequence - self._last > 1:
            self._lose(record.sequence - self._last - 1)
        self._last, self._read_before = record.sequence, True
        if not record.of_kernel:
            return
        try:
            self._take(record)
        except Exception:
            if not self._told:  # once: it may be every line
                self._told = True
                log.exception("a line of the kernel's log could not be used: %r", record.text)

    def _lose(self, records: int) -> None:
        self.lost += records
        now = time.monotonic()
        if now - self._told_lost_at >= TELL_LOST_SECONDS:
            self._told_lost_at = now
            log.warning("the kernel log is flooded: %d records lost so far; events may be missing", self.lost)

    def _exchanged(self, descriptor: int) -> bool:
        """Return whether the path has another file now; a truncated file is read from its beginning."""
        try:
            now = os.stat(self._path)  # noqa: PTH116  as cheap as it gets
        except FileNotFoundError:
            return False  # between the two steps of a rotation
        opened = os.fstat(descriptor)
        if (now.st_ino, now.st_dev) != (opened.st_ino, opened.st_dev):
            return True
        with contextlib.suppress(OSError):
            if opened.st_size < os.lseek(descriptor, 0, os.SEEK_CUR):
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


class _Backlog:
    """The end of a log when it was opened, to know when all earlier records are read, however many come meanwhile."""

    def __init__(self, path: Path, descriptor: int) -> None:
        about = os.fstat(descriptor)
        self._bytes = about.st_size if stat.S_ISREG(about.st_mode) else PIPE_BYTES
        # A second descriptor at the end: the first record that it gives is the first that is new. (On a pipe it would
        # take what the other one is to read.)
        self._end = _opened_at_end(path) if stat.S_ISCHR(about.st_mode) else None
        self._first_new: int | None = None

    def is_read(self, read_bytes: int, last: int | None) -> bool:
        """Return whether all is read, given the bytes read so far and the number of the last record."""
        if self._end is not None:
            self._look(self._end)
        if self._first_new is not None:
            return last is not None and last + 1 >= self._first_new
        return self._end is None and read_bytes >= self._bytes

    def close(self) -> None:
        """Close the second descriptor."""
        if self._end is not None:
            os.close(self._end)
            self._end = None

    def _look(self, end: int) -> None:
        with contextlib.suppress(BlockingIOError, BrokenPipeError):  # nothing new, or overrun: the next look gives one
            first = parse(os.read(end, READ_BYTES).partition(b"\n")[0])
            if first is not None:
                self._first_new = first.sequence
                self.close()


def _opened_at_end(path: Path) -> int | None:
    with contextlib.suppress(OSError):
        descriptor = _without_blocking(str(path), os.O_RDONLY)
        if _skipped(descriptor):
            return descriptor
        os.close(descriptor)
    return None


def _skipped(descriptor: int) -> bool:
    """Set the descriptor to the log's end; return whether that worked, as a pipe has none."""
    try:
        os.lseek(descriptor, 0, os.SEEK_END)
    except OSError:
        return False
    return True


def _without_blocking(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def _why(error: OSError) -> PartError:
    if isinstance(error, PermissionError):
        detail = f"{error.filename or 'the log'}: not allowed; run as root or with CAP_SYSLOG, or pass --path.kmsg"
        return PartError("no_permission", detail)
    return PartError(reason_of(error), str(error))
