"""Reading sysfs cheaply: descriptors stay open and are read again with pread.

540 files cost 18 ms with ``open().read()`` and 1.2 ms with descriptors kept open; ``benchmarks/bench_nic.py`` repeats
the comparison. A kept descriptor must notice that its device went away and came back: the folder's inode tells.
"""

from __future__ import annotations

import errno
import os
import resource
from typing import NamedTuple, Protocol

# A sysfs attribute is at most one page.
PAGE = 4096
# The descriptor's device is gone (unplugged, driver reloaded): the path may lead to a new one.
_REOPEN = frozenset({errno.ENODEV, errno.ESTALE, errno.EBADF})
# The driver says that it doesn't have this file's value. Asking again on every scrape makes some drivers write a
# kernel log line per file and scrape (node_exporter issue 3434), never asking again hides a recovery.
_UNSUPPORTED = frozenset({errno.EINVAL, errno.EOPNOTSUPP})
FIRST_RETRY_SECONDS = 30.0
LAST_RETRY_SECONDS = 3600.0
# sysfs doesn't touch a folder's times when a file is added (kernfs_add_one), so a folder listed while its driver was
# still making its files would stay incomplete for ever.
RELIST_SECONDS = 60.0


def allow_descriptors(wanted: int = 8192) -> None:
    """Raise the process's soft limit of open files towards ``wanted``, as Go's runtime does at start.

    A node with 8 HCAs needs 480; 32 would reach the usual soft limit of 1,024, which is there for select() only.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    aim = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < aim:
        resource.setrlimit(resource.RLIMIT_NOFILE, (aim, hard))


class Files(Protocol):
    """The system calls used on sysfs; tests put errors, hangs and records of what was opened here."""

    def open(self, path: str) -> int:
        """Open for reading; ``OSError`` if that fails."""

    def pread(self, descriptor: int) -> bytes:
        """The whole attribute, from its beginning."""

    def close(self, descriptor: int) -> None:
        """Close a descriptor."""


class SystemFiles:
    """The real ones."""

    def open(self, path: str) -> int:
        """See :class:`Files`."""
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def pread(self, descriptor: int) -> bytes:
        """See :class:`Files`."""
        return os.pread(descriptor, PAGE, 0)

    def close(self, descriptor: int) -> None:
        """See :class:`Files`."""
        os.close(descriptor)


class _Refusal(NamedTuple):
    retry_at: float
    wait: float
    errno: int
    message: str


class Folder:
    """One sysfs folder, its names and the descriptors of those of its files that were read.

    Not thread-safe: it belongs to the one worker that reads its device.
    """

    def __init__(self, path: str, files: Files, *, back_off: bool = False) -> None:
        self.path = path
        self.names: frozenset[str] = frozenset()
        self.inode = 0
        self._files = files
        self._back_off = back_off
        self._now = 0.0
        self._relist_at = 0.0
        self._signature: tuple[int, int, int] | None = None
        self._descriptors: dict[str, int] = {}
        self._refused: dict[str, _Refusal] = {}

    def refresh(self, now: float) -> None:
        """Look, at the monotonic time ``now``, whether this is still the folder it was; if not, let go of its files.

        A folder that doesn't exist has no names. Raises ``OSError`` for any other failure to look.
        """
        self._now = now
        try:
            found = os.stat(self.path)  # noqa: PTH116  ten times the speed of pathlib, on every scrape
        except FileNotFoundError:
            self.close()
            return
        signature = (found.st_dev, found.st_ino, found.st_mtime_ns)
        if signature != self._signature:
            self.close()
            self.inode, self._signature, self._relist_at = found.st_ino, signature, now
        if now >= self._relist_at:
            self.names = frozenset(os.listdir(self.path))  # noqa: PTH208
            self._relist_at = now + RELIST_SECONDS

    def read(self, name: str) -> str:
        """The text of a file without its line end; bytes that aren't UTF-8 are replaced. Raises ``OSError``."""
        refused = self._refused.get(name)
        if refused is not None and self._now < refused.retry_at:
            raise OSError(refused.errno, refused.message)
        try:
            text = self._pread(name).decode("utf-8", "replace").strip()
        except OSError as error:
            self._forget(name)
            if self._back_off and error.errno in _UNSUPPORTED:
                wait = min(LAST_RETRY_SECONDS, 2 * refused.wait) if refused else FIRST_RETRY_SECONDS
                # Not the exception itself: it would gather a traceback on every raise.
                self._refused[name] = _Refusal(self._now + wait, wait, error.errno or 0, error.strerror or "")
            raise
        if refused is not None:
            del self._refused[name]
        return text

    def text(self, name: str) -> str | None:
        """The text of a file, or None where it can't be read: for what a driver may well not have."""
        if name.partition("/")[0] not in self.names:
            return None
        try:
            return self.read(name)
        except OSError:
            return None

    def close(self) -> None:
        """Close all descriptors and forget the names."""
        for name in list(self._descriptors):
            self._forget(name)
        self._refused.clear()
        self._signature, self.names, self.inode = None, frozenset(), 0

    def _pread(self, name: str) -> bytes:
        descriptor = self._descriptors.get(name)
        if descriptor is not None:
            try:
                return self._files.pread(descriptor)
            except OSError as error:
                if error.errno not in _REOPEN:
                    raise
                self._forget(name)
        descriptor = self._descriptors[name] = self._files.open(f"{self.path}/{name}")
        return self._files.pread(descriptor)

    def _forget(self, name: str) -> None:
        descriptor = self._descriptors.pop(name, None)
        if descriptor is not None:
            try:
                self._files.close(descriptor)
            except OSError:
                return  # gone either way


class Folders:
    """The folders of one device, by path; ``now`` is the monotonic time of the present look at them."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._folders: dict[str, Folder] = {}
        self.now = 0.0

    def present(self, path: str) -> Folder:
        """Like :meth:`get`; ``FileNotFoundError`` where there is none."""
        folder = self.get(path)
        if not folder.inode:
            raise FileNotFoundError(path)
        return folder

    def get(self, path: str, *, back_off: bool = False) -> Folder:
        """The folder at ``path``, refreshed; see :meth:`Folder.refresh`."""
        folder = self._folders.get(path)
        if folder is None:
            folder = self._folders[path] = Folder(path, self._files, back_off=back_off)
        folder.refresh(self.now)
        return folder

    def close(self) -> None:
        """Close all."""
        for folder in self._folders.values():
            folder.close()
        self._folders.clear()
