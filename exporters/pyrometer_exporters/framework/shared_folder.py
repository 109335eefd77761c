"""List a folder that anybody may write to: by descriptor, fair among users, and bounded in time however full it is."""

from __future__ import annotations

import errno
import heapq
import os
import stat
import time
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar

# Listing a hundred thousand files takes half a second: where it is long, at most this share of the time goes into it.
LONG_SECONDS = 0.02
LISTING_SHARE = 0.02
# Clocks of a file server and of this node differ by less; a time further ahead was set by hand.
AHEAD_SECONDS = 60.0

K = TypeVar("K", bound=Hashable)


def fair_shares(wanted: Mapping[K, int], limit: int, each: int | None = None) -> dict[K, int]:
    """Return what each gets of ``limit``: as much as it wants, at most ``each``, and no more than those that want more.

    >>> fair_shares({"flood": 5000, "job": 8}, 256)
    {'job': 8, 'flood': 248}
    """
    shares: dict[K, int] = {}
    for place, (who, wants) in enumerate(sorted(wanted.items(), key=lambda item: item[1])):
        share = limit // (len(wanted) - place)
        shares[who] = min(wants, share if each is None else min(share, each))
        limit -= shares[who]
    return shares


def open_folder(path: str) -> int:
    """Return a descriptor of a folder; through a link only if it is root's or our own.

    Anybody can make a link in /dev/shm or /tmp, and lead us to where a look takes for ever.

    Raises:
        OSError: it can't be opened, or is somebody else's link.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    try:
        return os.open(path, flags | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        entry = os.lstat(path)
        if not stat.S_ISLNK(entry.st_mode):
            raise
        if entry.st_uid not in (0, os.geteuid()):
            raise OSError(errno.ELOOP, f"is a link of uid {entry.st_uid}, which is not followed", path) from None
        return os.open(path, flags)


class Listed(NamedTuple):
    """A file, its owner, when it was last written, in Unix seconds, and its size."""

    name: str
    uid: int
    written: float
    size: int


class SharedFolder:
    """Lists the newest regular files of a folder, at most a fair share for each user.

    Attributes:
        left_out: Number of files that are beyond the limit.
    """

    def __init__(self, path: Path, most: int) -> None:
        self._path = str(path)
        self._most = most
        self._names: list[str] = []
        self._next = 0.0
        self.left_out = 0

    def files(self, wanted: Callable[[str], bool], wall: float) -> list[Listed]:
        """Return the files whose names are wanted, the newest first; a time of the future is older than all.

        Raises:
            OSError: the folder can't be read.
        """
        folder = open_folder(self._path)
        try:
            if time.monotonic() < self._next:
                chosen = [entry for name in self._names if (entry := _looked_at(name, folder)) is not None]
            else:
                chosen = self._list(folder, wanted, wall)
        finally:
            os.close(folder)
        return sorted(chosen, key=lambda entry: (_age(entry, wall), entry.name))

    def _list(self, folder: int, wanted: Callable[[str], bool], wall: float) -> list[Listed]:
        began = time.monotonic()
        newest: dict[int, list[tuple[float, str, Listed]]] = {}
        counts: dict[int, int] = {}
        with os.scandir(folder) as entries:
            for item in entries:
                entry = _looked_at(item.name, folder) if wanted(item.name) else None
                if entry is not None:
                    of_user = newest.setdefault(entry.uid, [])
                    counts[entry.uid] = counts.get(entry.uid, 0) + 1
                    push = heapq.heappush if len(of_user) < self._most else heapq.heappushpop
                    push(of_user, (-_age(entry, wall), entry.name, entry))
        shares = fair_shares(counts, self._most)
        chosen = [entry for uid, of in newest.items() for *_, entry in sorted(of, reverse=True)[: shares[uid]]]
        self.left_out = sum(counts.values()) - len(chosen)
        self._names = [entry.name for entry in chosen]
        took = time.monotonic() - began
        self._next = began + took / LISTING_SHARE if took > LONG_SECONDS else 0.0
        return chosen


def _age(entry: Listed, wall: float) -> float:
    age = wall - entry.written
    return age if age >= -AHEAD_SECONDS else float("inf")


def _looked_at(name: str, folder: int) -> Listed | None:
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:  # removed meanwhile
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    return Listed(name, status.st_uid, status.st_mtime, status.st_size)
