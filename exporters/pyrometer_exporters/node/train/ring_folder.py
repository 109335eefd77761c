"""The folders of the rings: the shared one, and one per user beside it; list them when they have changed.

``/dev/shm/pyrometer`` is safe where root made it with the sticky bit, as the package's tmpfiles.d does. Where nobody
did, each user's client makes ``/dev/shm/pyrometer-<uid>``, or ``-<uid>.<anything>`` if somebody else has that name.
"""

from __future__ import annotations

import contextlib
import errno
import heapq
import os
import re
import stat
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from pyrometer import ring
from pyrometer_exporters.framework.shared_folder import LISTING_SHARE, LONG_SECONDS, open_folder
from pyrometer_exporters.node.train.limits import MAX_RINGS_PER_USER

# A folder that changed less than this before it was listed may change again without a new time: file systems' clocks
# tick every 10 ms or faster.
SETTLED_SECONDS = 1.0


class Listed(NamedTuple):
    """Identify the owner (uid) of a ring's file and when its inode last changed, in ns (ctime: no user can set it)."""

    uid: int
    changed: int


class RingFolder:
    """Lists the shared folder and the users' own.

    Attributes:
        left_out: Number of rings beyond the limit of their user, by uid.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._own_name = re.compile(re.escape(path.name) + r"-(\d{1,10})(\.[^/]*)?")
        self._folders: dict[str, _Folder] = {"": _Folder(str(path), None)}
        self._parent = _Change()
        self.left_out: dict[int, int] = {}

    def rings(self) -> Mapping[str, Listed]:
        """Return the rings by their path below the folders' parent, the newest of a user who has too many.

        Raises:
            OSError: The shared folder can't be listed, and no user has one.
        """
        self._list_own_folders()
        rings: dict[str, Listed] = {}
        self.left_out = {}
        for name, folder in list(self._folders.items()):
            try:
                listing = folder.rings()
            except OSError:
                if not name and len(self._folders) == 1:
                    raise
                continue
            rings.update({(f"{name}/{file}" if name else file): entry for file, entry in listing.items()})
            for uid, count in folder.left_out.items():
                self.left_out[uid] = self.left_out.get(uid, 0) + count
        return rings

    def place(self, name: str) -> str:
        """Return the path of a ring that :meth:`rings` named."""
        return str((self._path.parent if "/" in name else self._path) / name)

    @contextlib.contextmanager
    def opened(self, name: str) -> Iterator[int]:
        """Give a descriptor of the folder that has a ring which :meth:`rings` named.

        Raises:
            OSError: It is gone, or another one.
        """
        folder = self._folders.get(name.rpartition("/")[0])
        if folder is None:
            raise FileNotFoundError(errno.ENOENT, "the folder is gone", name)
        with folder.opened() as descriptor:
            yield descriptor

    def unsafe(self) -> str:
        """Return why others can take away the rings in the shared folder; empty where they can't."""
        try:
            folder = open_folder(str(self._path))
            status = os.fstat(folder)
            os.close(folder)
        except OSError as error:
            return f"{self._path} {error.strerror}" if error.errno == errno.ELOOP else ""
        if status.st_uid not in {0, os.geteuid()}:
            return f"{self._path} belongs to uid {status.st_uid}, who can remove everybody's rings: give it to root"
        if status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
            return f"{self._path} has no sticky bit, so anybody can remove everybody's rings: chmod 1777"
        return ""

    def _list_own_folders(self) -> None:
        """Keep the folders listed before where their parent can't be listed to its end."""
        folders = {"": self._folders[""]}
        with contextlib.suppress(OSError):
            if not self._parent.has_changed(self._path.parent.stat()):
                return
            with os.scandir(self._path.parent) as entries, self._parent:
                for entry in entries:
                    match = self._own_name.fullmatch(entry.name)
                    if match and entry.is_dir(follow_symlinks=False):
                        uid = int(match[1])
                        if entry.stat(follow_symlinks=False).st_uid == uid:
                            folder = self._folders.get(entry.name)
                            folders[entry.name] = folder or _Folder(str(self._path.parent / entry.name), uid)
            self._folders = folders


class _Change:
    """Notices that a folder has changed, and limits the share of time that listing it takes."""

    def __init__(self) -> None:
        self._state: tuple[int, int, int] | None = None  # inode, modification time and owner when it was listed
        self._next = 0.0
        self._started = 0.0

    def has_changed(self, status: os.stat_result) -> bool:
        """Return whether to list the folder of this status now, in a ``with`` of this object, which takes the time."""
        state = (status.st_ino, status.st_mtime_ns, status.st_uid)
        settled = time.time() - status.st_mtime > SETTLED_SECONDS
        if state == self._state or (self._state is not None and time.monotonic() < self._next):
            return False
        self._state = state if settled else (0, 0, status.st_uid)
        return True

    def __enter__(self) -> None:
        self._started = time.monotonic()

    def __exit__(self, *_: object) -> None:
        now = time.monotonic()
        took = now - self._started
        self._next = now + took / LISTING_SHARE if took > LONG_SECONDS else now


class _Folder:
    """One folder; of a user's own, only that user's files count."""

    def __init__(self, path: str, owner: int | None) -> None:
        self._path = path
        self._owner = owner
        self._change = _Change()
        self._rings: dict[str, Listed] = {}
        self.left_out: dict[int, int] = {}

    def rings(self) -> Mapping[str, Listed]:
        with self.opened() as folder:
            if self._change.has_changed(os.fstat(folder)):
                with self._change:
                    self._rings = self._list(folder)
        return self._rings

    @contextlib.contextmanager
    def opened(self) -> Iterator[int]:
        folder = open_folder(self._path)
        try:
            if self._owner not in {None, os.fstat(folder).st_uid}:
                raise OSError(errno.EPERM, "belongs to another user now", self._path)
            yield folder
        finally:
            os.close(folder)

    def _list(self, folder: int) -> dict[str, Listed]:
        newest: dict[int, list[tuple[int, str]]] = {}
        counts: dict[int, int] = {}
        with os.scandir(folder) as entries:
            for entry in entries:
                listed = _listed(entry)
                if listed is None or self._owner not in {None, listed.uid}:
                    continue
                of_user = newest.setdefault(listed.uid, [])
                counts[listed.uid] = counts.get(listed.uid, 0) + 1
                push = heapq.heappush if len(of_user) < MAX_RINGS_PER_USER else heapq.heappushpop
                push(of_user, (listed.changed, entry.name))
        self.left_out = {uid: count - len(newest[uid]) for uid, count in counts.items() if count > len(newest[uid])}
        return {name: Listed(uid, changed) for uid, of_user in newest.items() for changed, name in of_user}


def _listed(entry: os.DirEntry[str]) -> Listed | None:
    if not entry.name.endswith(ring.SUFFIX) or entry.name.startswith("."):
        return None
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:  # removed meanwhile
        return None
    return Listed(status.st_uid, status.st_ctime_ns)
