"""Read whole lines of a file that grows, is rotated, truncated or replaced."""

from __future__ import annotations

import os
import re
import zlib
from pathlib import Path

# A progress bar ends its states with a carriage return.
_LINE_END = re.compile(rb"[\r\n]")
READ_BYTES = 1 << 18
# A longer line is no step's: it is dropped, and so is the beginning of one that has no end yet.
MAX_LINE_BYTES = 1 << 16
_FIRST_LINE_BYTES = 1 << 12


class Tail:
    """Follows a path by the file's identity: a rotated file is read to its end before the new one is opened.

    Args:
        path: The log; it may be created later.
        from_end: Skip the present content.

    Attributes:
        dropped_bytes: Length of overlong lines that were not read.
        has_more: Whether the last read left something for the next.
    """

    def __init__(self, path: Path, *, from_end: bool = False) -> None:
        self._path = path
        self._from_end = from_end
        self._fd = -1
        self._offset = 0
        self._partial_line = b""
        self.dropped_bytes = 0
        self.has_more = False

    def lines(self) -> list[str]:
        """Return the lines that were completed since the last call, at most READ_BYTES of them.

        Raises:
            OSError: the file can't be opened or read; a missing file has no lines.
        """
        if self._fd < 0 and not self._open():
            return []
        data = self._read()
        if not data and self._is_replaced():
            self._close_rotated()
            data = self._read() if self._open() else b""
        self.has_more = len(data) == READ_BYTES
        return self._split(data)

    def identity(self) -> str:
        """Return a name of the file being read that changes when it is replaced or emptied; empty without a line."""
        if self._fd < 0:
            return ""
        first, end, _ = os.pread(self._fd, _FIRST_LINE_BYTES, 0).partition(b"\n")
        return f"{os.fstat(self._fd).st_ino}:{zlib.crc32(first):08x}" if end else ""

    def age(self, wall_time: float) -> float:
        """Return the seconds from the last write until ``wall_time`` (since the epoch), 0 without a file."""
        return max(0.0, wall_time - os.fstat(self._fd).st_mtime) if self._fd >= 0 else 0.0

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open(self) -> bool:
        try:
            self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            self._from_end = False  # a file that is created from now on is new as a whole
            return False
        self._offset = os.fstat(self._fd).st_size if self._from_end else 0
        self._from_end = False
        return True

    def _read(self) -> bytes:
        if os.fstat(self._fd).st_size < self._offset:  # truncated in place
            self._offset, self._partial_line = 0, b""
        data = os.pread(self._fd, READ_BYTES, self._offset)
        self._offset += len(data)
        return data

    def _is_replaced(self) -> bool:
        try:
            current = os.stat(self._path)
        except FileNotFoundError:
            return False  # between the two steps of a rotation
        own = os.fstat(self._fd)
        return (current.st_ino, current.st_dev) != (own.st_ino, own.st_dev)

    def _close_rotated(self) -> None:
        self.close()
        self._partial_line = b""

    def _split(self, data: bytes) -> list[str]:
        *lines, self._partial_line = _LINE_END.split(self._partial_line + data)
        if len(self._partial_line) > MAX_LINE_BYTES:
            self.dropped_bytes += len(self._partial_line)
            self._partial_line = b""
        self.dropped_bytes += sum(len(line) for line in lines if len(line) > MAX_LINE_BYTES)
        return [line.decode("utf-8", "replace") for line in lines if 0 < len(line) <= MAX_LINE_BYTES]
