"""Reading sysfs cheaply: descriptors stay open and are read again with pread.

540 files cost 18 ms with ``open().read()`` and 1.2 ms with descriptors kept open; ``benchmarks/bench_nic.py`` repeats
the comparison. A kept descriptor must notice that its device went away and came back: the folder's inode tells.
"""

from __future__ import annotations

import errno
import os
import resource
import time
from collections.abc import Iterable
from typing import NamedTuple, Protocol

# A sysfs attribute is at most one page. What is shorter than this, as all counters are, is there to its end: the kernel
# gives what fits. A smaller buffer takes a tenth less time.
PAGE, SHORT = 4096, 64
# The descriptor's device is gone (unplugged, driver reloaded): the path may lead to a new one.
_REOPEN = frozenset({errno.ENODEV, errno.ESTALE, errno.EBADF})
# The driver says that it doesn't have this file's value. Asking again on every scrape makes some drivers write a
# kernel log line per file and scrape (node_exporter issue 3434), never asking again hides a recovery.
_UNSUPPORTED = frozenset({errno.EINVAL, errno.EOPNOTSUPP})
# Seconds until a file that failed is asked again, the first time and at most; each failure doubles them.
UNSUPPORTED_WAITS = (30.0, 3600.0)
FAILED_WAITS = (5.0, 60.0)
# After a read that hung has come back. It has cost a thread, so not too soon.
HUNG_RETRY_SECONDS = 60.0
# sysfs doesn't touch a folder's times when a file is added (kernfs_add_one), so a folder listed while its driver was
# still making its files would stay incomplete for ever. One that was whole for long hardly gets more: the time doubles,
# up to so many times.
RELIST_SECONDS, RELIST_TIMES = 60.0, 8


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

    def pread(self, descriptor: int, size: int, offset: int, /) -> bytes:
        """What the attribute holds, as os.pread."""

    def close(self, descriptor: int) -> None:
        """Close a descriptor."""


class SystemFiles:
    """The real ones."""

    def open(self, path: str) -> int:
        """See :class:`Files`."""
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    # Itself: a function around it would cost a tenth of a read.
    pread = staticmethod(os.pread)

    def close(self, descriptor: int) -> None:
        """See :class:`Files`."""
        os.close(descriptor)


class AbandonedError(RuntimeError):
    """Nobody waits for this look at a device any more: another one was begun while it hung."""


class _Opened(NamedTuple):
    descriptor: int
    path: str


class _Refusal(NamedTuple):
    retry_at: float
    wait: float
    errno: int
    message: str


class Hung:
    """The files of one device whose read hangs, or did lately: they are not read, so that the others can be."""

    def __init__(self) -> None:
        self.until: dict[str, float] = {}
        """When each may be read again."""

    def add(self, path: str) -> None:
        """A read of the file or folder hangs."""
        self.until[path] = float("inf")

    def came_back(self, path: str, now: float) -> None:
        """The read ended, at the monotonic time ``now``."""
        self.until[path] = now + HUNG_RETRY_SECONDS

    def check(self, path: str, now: float) -> None:
        """``OSError`` where the file must not be read."""
        if path in self.until:
            if now < self.until[path]:
                raise OSError(errno.ETIMEDOUT, "an earlier read hung", path)
            del self.until[path]

    @property
    def paths(self) -> list[str]:
        """The files that are not read at present."""
        return list(self.until)


class Folder:
    """One sysfs folder, its names and the descriptors of those of its files that were read.

    Not thread-safe: it belongs to the one worker that reads its device.
    """

    def __init__(self, path: str, folders: Folders) -> None:
        self.path = path
        self.names: frozenset[str] = frozenset()
        self.inode = 0
        self._folders = folders
        self._files = folders.files
        self._look = 0
        self.check_at, self._check_after = float("-inf"), 0.0
        """When it is looked at again, if it is not a device's own; and how long that was after the time before."""
        self._signature: tuple[int, int, int] | None = None
        self._opened: dict[str, _Opened] = {}
        self.refused: dict[str, _Refusal] = {}
        """The files that failed lately; none of them is open."""

    def refresh(self, *, own: bool) -> None:
        """Look whether this is still the folder it was; if not, let go of its files.

        A device's own folder at every look. Those in it come and go with it, or a read of theirs fails: after a minute,
        and less and less often. A folder that doesn't exist has no names. Raises ``OSError`` for any other failure to
        look.
        """
        if self._look == self._folders.look or not (own or self._folders.now >= self.check_at):
            return
        self._folders.reading(self.path)
        self._look = self._folders.look
        try:
            found = os.stat(self.path)  # noqa: PTH116  ten times the speed of pathlib, on every scrape
        except (FileNotFoundError, NotADirectoryError):
            after = 0.0 if self.inode else self._check_after
            self.close()
            self._check_again(after)
            return
        signature = (found.st_dev, found.st_ino, found.st_mtime_ns)
        if signature != self._signature:
            self.close()
            self.inode, self._signature = found.st_ino, signature
        if self._folders.now >= self.check_at:
            names = frozenset(os.listdir(self.path))  # noqa: PTH208
            early = 0.0 if self.names else self._folders.early
            self.names = self.names if names == self.names else names
            self._check_again(self._check_after, early)

    def _check_again(self, after: float, early: float = 0.0) -> None:
        """At the time after twice as long as it was this time."""
        self._check_after = min(max(2 * after, RELIST_SECONDS), RELIST_TIMES * RELIST_SECONDS)
        self.check_at = self._folders.now + self._check_after * (1 - early)

    def read(self, name: str) -> str:
        """The text of a file without its line end; bytes that aren't UTF-8 are replaced. Raises ``OSError``."""
        return self.raw(name).decode("utf-8", "replace").strip()

    def raw(self, name: str) -> bytes:
        """All that a file holds. Raises ``OSError``."""
        refused = self.refused.get(name) if self.refused else None
        if refused is not None and self._folders.now < refused.retry_at:
            raise OSError(refused.errno, refused.message)
        opened = self._opened.get(name)
        self._folders.reading(f"{self.path}/{name}" if opened is None else opened.path)
        try:
            found = self._pread(name, opened)
        except OSError as error:
            self._forget(name)
            self._refuse(name, error, refused)
            raise
        if refused is not None:
            del self.refused[name]
        return found

    def several(self, names: Iterable[str]) -> tuple[list[bytes | None], list[OSError]]:
        """What each of several files holds, None where it can't be read, and the failures.

        As :meth:`raw` for each, in one loop where nothing is amiss: for hundreds of files at every scrape.
        """
        folders, pread, clock = self._folders, self._files.pread, time.monotonic
        opened, hung = self._opened, self._folders.hung.until
        found: list[bytes | None] = []
        failures: list[OSError] = []
        for name in names:
            file = opened.get(name)
            if file is None or hung:  # one that was refused is not open
                found.append(self._one(name, failures))
                continue
            if folders.abandoned:
                raise AbandonedError
            folders.since = clock()
            descriptor, folders.current = file
            try:
                text = pread(descriptor, SHORT, 0)
                found.append(text if len(text) < SHORT else pread(descriptor, PAGE, 0))
            except OSError as error:
                found.append(self._after(name, error, failures))
        return found, failures

    def text(self, name: str) -> str | None:
        """The text of a file, or None where it can't be read: for what a driver may well not have."""
        if name not in self.names and name.partition("/")[0] not in self.names:
            return None
        try:
            return self.read(name)
        except OSError:
            return None

    @property
    def failing(self) -> Iterable[tuple[str, int]]:
        """The files that are not asked at present, with the errno of their last read."""
        return [(name, refusal.errno) for name, refusal in self.refused.items()]

    def close(self) -> None:
        """Close all descriptors and forget the names."""
        for name in list(self._opened):
            self._forget(name)
        self.refused.clear()
        self._signature, self.names, self.inode = None, frozenset(), 0
        self.check_at, self._check_after = float("-inf"), 0.0

    def _one(self, name: str, failures: list[OSError]) -> bytes | None:
        try:
            return self.raw(name)
        except OSError as error:
            failures.append(error)
            return None

    def _after(self, name: str, error: OSError, failures: list[OSError]) -> bytes | None:
        """A kept descriptor failed: what the file holds once it is opened anew, where that can help."""
        self._forget(name)
        if error.errno in _REOPEN:
            return self._one(name, failures)
        self._refuse(name, error, None)
        failures.append(error)
        return None

    def _refuse(self, name: str, error: OSError, before: _Refusal | None) -> None:
        first, last = UNSUPPORTED_WAITS if error.errno in _UNSUPPORTED else FAILED_WAITS
        wait = min(last, 2 * before.wait) if before else first
        self.check_at = self._folders.now  # the whole folder may be another one
        # Not the exception itself: it would gather a traceback on every raise.
        self.refused[name] = _Refusal(self._folders.now + wait, wait, error.errno or 0, error.strerror or "")

    def _pread(self, name: str, opened: _Opened | None) -> bytes:
        if opened is not None:
            try:
                return self._files.pread(opened.descriptor, PAGE, 0)
            except OSError as error:
                if error.errno not in _REOPEN:
                    raise
                self._forget(name)
        path = f"{self.path}/{name}"
        opened = self._opened[name] = _Opened(self._files.open(path), path)
        return self._files.pread(opened.descriptor, PAGE, 0)

    def _forget(self, name: str) -> None:
        opened = self._opened.pop(name, None)
        if opened is not None:
            try:
                self._files.close(opened.descriptor)
            except OSError:
                return  # gone either way


class Folders:
    """The folders of one device, by path; ``now`` is the monotonic time of the present look at them.

    ``early`` is by what part of its interval the second listing of a folder comes before its time, see tiers.TierCache.
    """

    def __init__(self, files: Files, hung: Hung | None = None, early: float = 0.0) -> None:
        self.files = files
        self.early = early
        self.now = 0.0
        self.look = 0
        self.abandoned = False
        self.since = 0.0
        """When the read that is under way began, by ``time.monotonic``."""
        self.current = ""
        """The file or folder that is being read, or was read last; empty if none ever was."""
        self.hung = Hung() if hung is None else hung
        self._folders: dict[str, Folder] = {}

    def begin(self, now: float) -> None:
        """A look at the device begins, at the monotonic time ``now``."""
        self.now = now
        self.look += 1

    def reading(self, path: str) -> None:
        """A read of a file, or of a folder, is about to begin. ``OSError`` where it must not."""
        if self.abandoned:
            raise AbandonedError
        if self.hung.until:
            self.hung.check(path, self.now)
        # In this order: who looks in between must not take this one for the long read before it.
        self.since = time.monotonic()
        self.current = path

    def present(self, path: str) -> Folder:
        """A device's own folder; ``FileNotFoundError`` where there is none."""
        folder = self._folder(path)
        before = folder.inode
        folder.refresh(own=True)
        if folder.inode != before:
            self._look_again(path)
        if not folder.inode:
            raise FileNotFoundError(path)
        return folder

    def get(self, path: str) -> Folder:
        """A folder of a device; see :meth:`Folder.refresh`."""
        folder = self._folder(path)
        if self.now >= folder.check_at:
            folder.refresh(own=False)
        return folder

    def _folder(self, path: str) -> Folder:
        return self._folders.get(path) or self._folders.setdefault(path, Folder(path, self))

    def _look_again(self, below: str) -> None:
        """The device was made anew, and all folders with it."""
        for path, folder in self._folders.items():
            if path.startswith(f"{below}/"):
                folder.close()

    def failing(self, below: str) -> tuple[tuple[str, int], ...]:
        """The files below a folder that can't be read at present, in order: the path from there, and the errno."""
        refusing = [folder for folder in self._folders.values() if folder.refused]
        if not refusing and not self.hung.until:
            return ()
        failing = {f"{folder.path}/{name}": number for folder in refusing for name, number in folder.failing}
        failing.update(dict.fromkeys(self.hung.paths, errno.ETIMEDOUT))
        return tuple(sorted((path.removeprefix(f"{below}/"), number) for path, number in failing.items()))

    def close(self) -> None:
        """Close all."""
        for folder in self._folders.values():
            folder.close()
        self._folders.clear()
