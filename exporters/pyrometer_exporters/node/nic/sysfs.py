"""Read sysfs cheaply: descriptors stay open and are read again with pread.

540 files take 1.2 ms so, and 18 ms with ``open().read()``. An open descriptor doesn't notice that its device was
removed and added again; a change of the folder's inode shows it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

# A sysfs attribute is at most one page. Text shorter than SHORT, as all counters are, is complete: the kernel fills the
# buffer otherwise.
PAGE, SHORT = 4096, 64
# The descriptor's device is gone (unplugged, driver reloaded): reopen, as the path may lead to a new one.
_REOPEN = frozenset({errno.ENODEV, errno.ESTALE, errno.EBADF})
# The driver doesn't have this file's value. Reading it at every scrape makes some drivers write a kernel log line per
# file and scrape (node_exporter issue 3434); never reading it again hides a recovery.
_UNSUPPORTED = frozenset({errno.EINVAL, errno.EOPNOTSUPP})
# Seconds until a file that failed is read again, the first time and at most; each failure doubles them.
UNSUPPORTED_WAITS = (30.0, 3600.0)
FAILED_WAITS = (5.0, 60.0)
# Seconds from the end of a read that hung to the next: it cost a thread, so not too soon.
HUNG_RETRY_SECONDS = 60.0
# sysfs doesn't update a folder's times when a file is added (kernfs_add_one), so a folder listed while its driver was
# still creating files would stay incomplete. List it again, at intervals that double up to RELIST_TIMES.
RELIST_SECONDS, RELIST_TIMES = 60.0, 8


# Files that stay open in all, shared equally by the devices, and those of one device at least: the first that it reads,
# which are those of its link. 10 HCAs have 800 files, 200 virtual functions more than the limit of open files below.
# The others are opened for each read: with 240 open files, the links of 10 HCAs cost a sixth more CPU at 5 s.
MOST_OPEN, LEAST_OPEN = 2048, 8


def allow_descriptors(wanted: int = 8192) -> None:
    """Raise the soft limit of open files towards ``wanted``, as Go's runtime does at start.

    A node with 8 HCAs needs 480; 32 would reach the usual soft limit of 1,024, which exists for select() only.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    aim = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < aim:
        resource.setrlimit(resource.RLIMIT_NOFILE, (aim, hard))


def share_of_open_files(devices: int) -> int:
    """Return how many files of each of so many devices may stay open.

    >>> share_of_open_files(10), share_of_open_files(1000)
    (204, 8)
    """
    return max(LEAST_OPEN, MOST_OPEN // max(1, devices))


def small_text(path: str) -> str:
    """Read a file that is no device's; empty where it can't be read. By system calls alone, as for each scrape."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(descriptor, SHORT).decode("ascii", "replace").strip()
    except OSError:
        return ""
    finally:
        os.close(descriptor)


class Files:
    """The system calls used on sysfs; tests replace them to inject errors and hangs."""

    def open(self, path: str) -> int:
        """Open a file for reading. Raises ``OSError``."""
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    # The function itself, without a wrapper: it is called for hundreds of files at every scrape.
    pread = staticmethod(os.pread)

    def close(self, descriptor: int) -> None:
        """Close a descriptor. Raises ``OSError``."""
        os.close(descriptor)


class AbandonedError(RuntimeError):
    """This read of a device was abandoned: another one was started while it hung."""


class _Opened(NamedTuple):
    descriptor: int
    path: str


class _Refusal(NamedTuple):
    retry_at: float
    wait: float
    errno: int
    message: str


class HungFiles:
    """The files of one device whose read hangs or hung lately; they are skipped so that the others can be read."""

    def __init__(self) -> None:
        self.until: dict[str, float] = {}
        """When each file may be read again."""

    def add(self, path: str) -> None:
        """Skip the file or folder: a read of it hangs."""
        self.until[path] = float("inf")

    def came_back(self, path: str, now: float) -> None:
        """Allow the file again later: its read ended at the monotonic time ``now``."""
        self.until[path] = now + HUNG_RETRY_SECONDS

    def check(self, path: str, now: float) -> None:
        """Raise ``OSError`` if the file must not be read at the monotonic time ``now``."""
        if path in self.until:
            if now < self.until[path]:
                raise OSError(errno.ETIMEDOUT, "an earlier read hung", path)
            del self.until[path]

    @property
    def paths(self) -> list[str]:
        """The files that are skipped at present."""
        return list(self.until)


class Folder:
    """One sysfs folder, the names in it, and open descriptors of the files that were read.

    Not thread-safe: it belongs to the one thread that reads its device.
    """

    def __init__(self, path: str, folders: Folders) -> None:
        self.path = path
        self.names: frozenset[str] = frozenset()
        self.inode = 0
        self._folders = folders
        self._files = folders.files
        self._round = 0
        self.check_at, self._check_after = float("-inf"), 0.0
        """When the folder is checked again, unless it is a device's own; and the interval that led there."""
        self._signature: tuple[int, int, int] | None = None
        self._opened: dict[str, _Opened] = {}
        self.refused: dict[str, _Refusal] = {}
        """The files whose last read failed; none of them is open."""

    def refresh(self, *, is_device: bool) -> None:
        """Check whether this is still the same folder; if not, close its files.

        The folder of a device is checked at every read of the device. Folders below appear and vanish with it, or
        their reads fail, so they are checked after a minute and then less often. A folder that doesn't exist has no
        names. Raises ``OSError`` for any other failure.
        """
        if self._round == self._folders.round or not (is_device or self._folders.now >= self.check_at):
            return
        self._folders.reading(self.path)
        self._round = self._folders.round
        try:
            stat = os.stat(self.path)  # noqa: PTH116  far cheaper than pathlib, at every scrape
        except (FileNotFoundError, NotADirectoryError):
            after = 0.0 if self.inode else self._check_after
            self.close()
            self._check_again(after)
            return
        signature = (stat.st_dev, stat.st_ino, stat.st_mtime_ns)
        if signature != self._signature:
            self.close()
            self.inode, self._signature = stat.st_ino, signature
        if self._folders.now >= self.check_at:
            names = frozenset(os.listdir(self.path))  # noqa: PTH208
            self.names = self.names if names == self.names else names
            self._check_again(self._check_after)

    def _check_again(self, after: float) -> None:
        """Schedule the next check after twice the last interval."""
        self._check_after = min(max(2 * after, RELIST_SECONDS), RELIST_TIMES * RELIST_SECONDS)
        self.check_at = self._folders.now + self._check_after

    def read(self, name: str) -> str:
        """Read the text of a file without its line end; bytes that aren't UTF-8 are replaced. Raises ``OSError``."""
        return self.raw(name).decode("utf-8", "replace").strip()

    def raw(self, name: str) -> bytes:
        """Read a whole file. Raises ``OSError``."""
        refused = self.refused.get(name) if self.refused else None
        if refused is not None and self._folders.now < refused.retry_at:
            raise OSError(refused.errno, refused.message)
        opened = self._opened.get(name)
        self._folders.reading(f"{self.path}/{name}" if opened is None else opened.path)
        try:
            content = self._pread(name, opened)
        except OSError as error:
            self._forget(name)
            self._refuse(name, error, refused)
            raise
        if refused is not None:
            del self.refused[name]
        return content

    def several(self, names: Iterable[str]) -> tuple[list[bytes | None], list[OSError]]:
        """Read several files; return their contents, None where a file can't be read, and the failures.

        Equivalent to :meth:`raw` for each, in one loop for the normal case: hundreds of files at every scrape.
        """
        folders, pread, clock = self._folders, self._files.pread, time.monotonic
        opened, hung = self._opened, self._folders.hung.until
        contents: list[bytes | None] = []
        failures: list[OSError] = []
        for name in names:
            file = opened.get(name)
            if file is None or hung:  # a refused file is not open
                contents.append(self._one(name, failures))
                continue
            if folders.abandoned:
                raise AbandonedError
            folders.since = clock()
            descriptor, folders.current = file
            try:
                text = pread(descriptor, SHORT, 0)
                contents.append(text if len(text) < SHORT else pread(descriptor, PAGE, 0))
            except OSError as error:
                contents.append(self._reopened(name, error, failures))
        return contents, failures

    def text(self, name: str) -> str | None:
        """Read the text of an optional file; None where it can't be read."""
        if name not in self.names and name.partition("/")[0] not in self.names:
            return None
        content = self.several((name,))[0][0]
        return None if content is None else content.decode("utf-8", "replace").strip()

    @property
    def failing(self) -> Iterable[tuple[str, int]]:
        """The files that are skipped at present, each with the errno of its last read."""
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

    def _reopened(self, name: str, error: OSError, failures: list[OSError]) -> bytes | None:
        """Read a file whose open descriptor failed with ``error``, reopened where that can help."""
        self._forget(name)
        if error.errno in _REOPEN:
            return self._one(name, failures)
        self._refuse(name, error, None)
        failures.append(error)
        return None

    def _refuse(self, name: str, error: OSError, before: _Refusal | None) -> None:
        first, last = UNSUPPORTED_WAITS if error.errno in _UNSUPPORTED else FAILED_WAITS
        wait = min(last, 2 * before.wait) if before else first
        self.check_at = self._folders.now  # the whole folder may have been replaced
        # Not the exception itself: its traceback would grow with every raise.
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
        descriptor = self._files.open(path)
        if self._folders.opened < self._folders.most_open():
            self._folders.opened += 1
            self._opened[name] = _Opened(descriptor, path)
            return self._files.pread(descriptor, PAGE, 0)
        try:
            return self._files.pread(descriptor, PAGE, 0)
        finally:
            self._close(descriptor)

    def _forget(self, name: str) -> None:
        opened = self._opened.pop(name, None)
        if opened is not None:
            self._folders.opened -= 1
            self._close(opened.descriptor)

    def _close(self, descriptor: int) -> None:
        with contextlib.suppress(OSError):  # closed either way
            self._files.close(descriptor)


class Folders:
    """The folders of one device, by path; ``now`` is the monotonic time of the present read of the device.

    Args:
        files: the system calls.
        hung: the files that are skipped.
        most_open: returns how many files may stay open at present.
    """

    def __init__(
        self, files: Files, hung: HungFiles | None = None, most_open: Callable[[], int] = lambda: MOST_OPEN
    ) -> None:
        self.files = files
        self.most_open = most_open
        self.now = 0.0
        self.round = 0
        self.abandoned = False
        self.opened = 0
        """How many files are open, of all folders."""
        self.since = 0.0
        """When the read under way began, by ``time.monotonic``."""
        self.current = ""
        """The file or folder being read, or read last; empty if none ever was."""
        self.hung = HungFiles() if hung is None else hung
        self._folders: dict[str, Folder] = {}

    def begin(self, now: float) -> None:
        """Begin a read of the device at the monotonic time ``now``."""
        self.now = now
        self.round += 1

    def reading(self, path: str) -> None:
        """Note that a read of ``path`` is about to begin. Raises ``OSError`` if it must not."""
        if self.abandoned:
            raise AbandonedError
        if self.hung.until:
            self.hung.check(path, self.now)
        # In this order: an observer in between must not take this read for the long one before it.
        self.since = time.monotonic()
        self.current = path

    def present(self, path: str) -> Folder:
        """Return a device's own folder. Raises ``FileNotFoundError`` where it doesn't exist."""
        folder = self._folder(path)
        before = folder.inode
        folder.refresh(is_device=True)
        if folder.inode != before:
            self._close_below(path)
        if not folder.inode:
            raise FileNotFoundError(path)
        return folder

    def get(self, path: str) -> Folder:
        """Return a folder of a device, refreshed if due. Raises ``OSError``, see :meth:`Folder.refresh`."""
        folder = self._folder(path)
        if self.now >= folder.check_at:
            folder.refresh(is_device=False)
        return folder

    def _folder(self, path: str) -> Folder:
        return self._folders.get(path) or self._folders.setdefault(path, Folder(path, self))

    def _close_below(self, below: str) -> None:
        """Close the folders below a device that was replaced."""
        for path, folder in self._folders.items():
            if path.startswith(f"{below}/"):
                folder.close()

    def failing(self, below: str) -> tuple[tuple[str, int], ...]:
        """List the files below a folder that can't be read at present: relative path and errno, sorted."""
        refusing = [folder for folder in self._folders.values() if folder.refused]
        if not refusing and not self.hung.until:
            return ()
        failing = {f"{folder.path}/{name}": number for folder in refusing for name, number in folder.failing}
        failing.update(dict.fromkeys(self.hung.paths, errno.ETIMEDOUT))
        return tuple(sorted((path.removeprefix(f"{below}/"), number) for path, number in failing.items()))

    def close(self) -> None:
        """Close all folders."""
        for folder in self._folders.values():
            folder.close()
        self._folders.clear()
