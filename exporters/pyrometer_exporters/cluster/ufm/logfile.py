"""Follow a text log by inode and offset: each line once, over rotation, truncation and restarts."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

# The most that one turn reads: an exporter that was away for a night catches up in a minute, without taking a core.
TURN_BYTES = 8 << 20
_CHUNK = 1 << 18
# The beginning of a file distinguishes it from another one with the same inode: a timestamp to the millisecond.
_MARK_BYTES = 256
MAX_LINE = 1 << 16
# Rotated logs: event.log.1, event.log-20260120. Compressed ones have other contents and can't be continued.
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst")


@dataclass(frozen=True)
class LogPosition:
    """A position in a file: its inode, the offset, and the hash of its first ``marked`` bytes."""

    inode: int
    offset: int
    marked: int = 0
    mark: str = ""


@dataclass
class _Open:
    descriptor: int
    inode: int
    offset: int = 0
    rest: bytes = b""
    cut: bool = False  # in the middle of a line that was too long

    @property
    def settled(self) -> int:
        """The offset up to which whole lines were returned."""
        return self.offset - len(self.rest)


@dataclass
class LogFile:
    """A log that is followed. Not thread-safe.

    Attributes:
        path: the log's name, which a rotation gives to a new file.
        gaps: how often lines may be missing because the file that was read last is gone.
        unread: bytes that are still to be read.
    """

    path: Path
    gaps: int = 0
    unread: int = 0
    line_place: LogPosition | None = field(default=None, init=False)
    """The beginning of the line that was returned last."""
    _open: _Open | None = field(default=None, init=False)
    _lost: LogPosition | None = field(default=None, init=False)  # where to continue after an error
    _mark: tuple[int, str] = field(default=(0, ""), init=False)  # of the open file: how many bytes, and their hash

    def resume(self, place: LogPosition) -> None:
        """Continue at a position from before a restart, or at the log's beginning if that file is gone.

        Raises:
            OSError: The log can't be read.
        """
        last = next((path for path in self._files() if _is(path, place)), None)
        # If the file was copied and truncated meanwhile, the copy has the lines after the position.
        last = last or next((path for path in self._files() if _is_copy(path, place)), None)
        if last is None:
            self._switch_to(self.path)
            self.gaps += 1
        else:
            self._switch_to(last, place.offset)

    def begin(self, most: int) -> None:
        """Start with at most the last ``most`` bytes of the log.

        Raises:
            OSError: The log can't be read.
        """
        self._switch_to(self.path)
        if self._open is not None:
            self._open.offset = max(0, os.fstat(self._open.descriptor).st_size - most)

    def place(self) -> LogPosition | None:
        """Return the position up to which lines were returned; None before the first file was open."""
        file = self._open
        return None if file is None else LogPosition(file.inode, file.settled, *self._mark)

    def lines(self) -> Iterator[str]:
        """Return the lines written since, at most TURN_BYTES.

        Raises:
            OSError: The log can't be read.
        """
        if self._lost is not None:
            self.resume(self._lost)
            self._lost = None
        try:
            yield from self._lines()
        except OSError:
            # The descriptor may be of no more use (ESTALE, a disk that was mounted again): the next turn opens the log
            # again and continues where the lines that were returned end.
            self._lost = self.place() or self._lost
            self.close()
            raise

    def _lines(self) -> Iterator[str]:
        left = TURN_BYTES
        while left > 0:
            if self._open is None:
                self._switch_to(self.path)
            file = self._open
            if file is None:
                return
            self._check_beginning(file)
            for line, size in self._drain(file, left):
                left -= size
                yield line
            if left <= 0 or not self._next(file):
                break
        self._measure()

    def close(self) -> None:
        """Close the file."""
        if self._open is not None:
            os.close(self._open.descriptor)
            self._open = None

    def _drain(self, file: _Open, most: int) -> Iterator[tuple[str, int]]:
        while most > 0:
            data = os.pread(file.descriptor, min(_CHUNK, most), file.offset)
            if not data:
                return
            most -= len(data)
            file.offset += len(data)
            *lines, file.rest = (file.rest + data).split(b"\n")
            self._mark_beginning(file)
            start = file.settled - sum(map(len, lines)) - len(lines)
            for line in lines:
                self.line_place = LogPosition(file.inode, start, *self._mark)
                start += len(line) + 1
                if not file.cut:
                    yield line.decode(errors="replace").rstrip("\r"), len(line) + 1
                file.cut = False
            if len(file.rest) > MAX_LINE:  # its beginning counts as a line; the rest is skipped
                yield file.rest.decode(errors="replace"), len(file.rest)
                file.rest, file.cut = b"", True

    def _next(self, file: _Open) -> bool:
        """Return whether another file, or the same from its beginning, must be read after the end of this one."""
        if self._check_beginning(file):
            return True
        try:
            now = os.stat(self.path)  # noqa: PTH116  as cheap as it gets
        except FileNotFoundError:
            return False  # between the two steps of a rotation
        if now.st_ino == file.inode:
            return False
        following = self._after(file.inode)
        # While the new file is empty the writer may still use the old one.
        if following == self.path and not now.st_size:
            return False
        # Lines between our last read and the rotation are read first.
        if os.fstat(file.descriptor).st_size <= file.offset:
            self._switch_to(following)
        return True

    def _after(self, inode: int) -> Path:
        """Return the file that followed the one with this inode: there may have been several rotations since."""
        files = [path for path in self._files() if path != self.path]
        numbers = [_inode(path) for path in files]
        older = files[numbers.index(inode) + 1 :] if inode in numbers else []
        return older[0] if older else self.path

    def _check_beginning(self, file: _Open) -> bool:
        """Restart in a truncated file, which is shorter than before or begins differently; return whether it is one."""
        length, mark = self._mark
        shorter = os.fstat(file.descriptor).st_size < file.offset
        if not shorter and _hash(os.pread(file.descriptor, length, 0)) == mark:
            return False
        file.offset, file.rest, file.cut, self._mark = 0, b"", False, (0, _hash(b""))
        return True

    def _switch_to(self, path: Path, offset: int = 0) -> None:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a FIFO must not hang us
        except FileNotFoundError:
            if path == self.path:
                raise
            self.close()
            return  # a rotated file that was removed meanwhile
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):  # which can be opened, and never be read
            os.close(descriptor)
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
        self.close()
        self._open = _Open(descriptor, os.fstat(descriptor).st_ino, offset)
        self._mark = (0, _hash(b""))
        self._mark_beginning(self._open)

    def _mark_beginning(self, file: _Open) -> None:
        if self._mark[0] < _MARK_BYTES:
            beginning = os.pread(file.descriptor, min(_MARK_BYTES, file.settled), 0) if file.settled else b""
            self._mark = (len(beginning), _hash(beginning))

    def _files(self) -> list[Path]:
        """Return the log and its rotated files, the latest written last."""
        files = []
        for path in self.path.parent.glob(f"{self.path.name}*"):
            with contextlib.suppress(OSError):
                if path.is_file() and not path.name.endswith(_COMPRESSED):
                    files.append((path.stat().st_mtime_ns, path))
        return [path for _, path in sorted(files)]

    def _measure(self) -> None:
        file = self._open
        self.unread = 0 if file is None else max(0, os.fstat(file.descriptor).st_size - file.offset)


def _is(path: Path, place: LogPosition) -> bool:
    """Return whether this is the file of the position."""
    return _inode(path) == place.inode and _holds(path, place)


def _is_copy(path: Path, place: LogPosition) -> bool:
    """Return whether this is a copy of that file: an equal beginning of this length has the same timestamps."""
    return place.marked == _MARK_BYTES and _holds(path, place)


def _holds(path: Path, place: LogPosition) -> bool:
    try:
        with path.open("rb") as file:
            return os.fstat(file.fileno()).st_size >= place.offset and _hash(file.read(place.marked)) == place.mark
    except OSError:
        return False


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:  # moved on meanwhile
        return -1


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
