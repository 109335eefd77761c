"""Whole lines of a file that grows, is rotated, truncated or replaced."""

from __future__ import annotations

import os
import re
import zlib
from pathlib import Path

# A progress bar ends its states with a carriage return.
_LINE_END = re.compile(rb"[\r\n]")
READ_BYTES = 1 << 18
# What comes without any line end is no log; its beginning is dropped.
LONGEST_LINE = 1 << 16
_FIRST_LINE = 1 << 12


class Tail:
    """Follows a path by the file's identity: what is rotated away is read to its end before the new file is begun.

    Args:
        path: the log; it may come into being later.
        from_end: pass over what is there at first.
    """

    def __init__(self, path: Path, *, from_end: bool = False) -> None:
        self._path = path
        self._from_end = from_end
        self._fd = -1
        self._offset = 0
        self._rest = b""
        self.dropped = 0
        """Bytes of overlong lines that were not read."""
        self.behind = False
        """Whether the last reading left something unread for the next one."""

    def lines(self) -> list[str]:
        """The lines that have come to their end since the last call, at most READ_BYTES of them. Raises OSError."""
        if self._fd < 0 and not self._open():
            return []
        data = self._read()
        if not data and self._replaced():
            self._begin_anew()
            data = self._read() if self._open() else b""
        self.behind = len(data) == READ_BYTES
        return self._split(data)

    def identity(self) -> str:
        """Which file is read now, over a copy that empties it too; empty where there is none or it has no line yet."""
        if self._fd < 0:
            return ""
        first, end, _ = os.pread(self._fd, _FIRST_LINE, 0).partition(b"\n")
        return f"{os.fstat(self._fd).st_ino}:{zlib.crc32(first):08x}" if end else ""

    def age(self, wall: float) -> float:
        """Seconds from the last write to the file until ``wall`` (since the epoch), 0 where there is no file."""
        return max(0.0, wall - os.fstat(self._fd).st_mtime) if self._fd >= 0 else 0.0

    def close(self) -> None:
        """Let go of the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open(self) -> bool:
        try:
            self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            self._from_end = False  # what comes into being from now on is new as a whole
            return False
        self._offset = os.fstat(self._fd).st_size if self._from_end else 0
        self._from_end = False
        return True

    def _read(self) -> bytes:
        if os.fstat(self._fd).st_size < self._offset:  # truncated in place
            self._offset, self._rest = 0, b""
        data = os.pread(self._fd, READ_BYTES, self._offset)
        self._offset += len(data)
        return data

    def _replaced(self) -> bool:
        """Whether the path has another file now."""
        try:
            there = os.stat(self._path)
        except FileNotFoundError:
            return False  # between the two steps of a rotation
        own = os.fstat(self._fd)
        return (there.st_ino, there.st_dev) != (own.st_ino, own.st_dev)

    def _begin_anew(self) -> None:
        self.close()
        self._rest = b""

    def _split(self, data: bytes) -> list[str]:
        *lines, rest = _LINE_END.split(self._rest + data)
        if len(rest) > LONGEST_LINE:
            self.dropped += len(rest)
            rest = b""
        self._rest = rest
        return [line.decode("utf-8", "replace") for line in lines if line]
