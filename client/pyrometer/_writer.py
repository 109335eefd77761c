"""Making the ring file, safely: whole before it is visible, its memory allocated before it is mapped."""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import time

from pyrometer import ring

# A finished ring stays long enough for the exporter to read its end, even after a restart of the exporter.
KEEP_SECONDS = 600.0
_UNFINISHED = ".ring.new"


def create(folder: str, name: str, meta: bytes) -> tuple[mmap.mmap, int, str]:
    """Make a ring; returns the mapping, the descriptor that holds its lock, and its path. Raises OSError.

    The lock lives as long as this process, however it ends: that is how the exporter tells a dead rank from a slow
    one, across PID namespaces.
    """
    if len(meta) > ring.META_BYTES:
        msg = f"the run's description is {len(meta)} bytes long; {ring.META_BYTES} fit"
        raise OSError(msg)
    _make_folder(folder)
    path = os.path.join(folder, name + ring.SUFFIX)
    hidden = os.path.join(folder, f".{name}{_UNFINISHED}")
    fd = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        # Writing to a page that a full /dev/shm can't provide is SIGBUS, the end of the job: take all pages now.
        os.posix_fallocate(fd, 0, ring.FILE_BYTES)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        mapping = mmap.mmap(fd, ring.FILE_BYTES)
        _write_header(mapping, meta)
        os.rename(hidden, path)
    except BaseException:
        os.close(fd)
        _remove(hidden)
        raise
    return mapping, fd, path


def sweep(folder: str) -> None:
    """Remove this user's rings whose ranks ended more than KEEP_SECONDS ago; 400 kB of memory each. Raises OSError."""
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                if _is_left_over(entry) or _is_left_over_dump(entry):
                    os.unlink(entry.path)
            except OSError:
                pass  # another rank swept it a moment ago, or it can't be read: the others still are to be swept


def _is_left_over(entry: os.DirEntry[str]) -> bool:
    # Also what a rank leaves that is killed while it makes its ring.
    if not entry.name.endswith((ring.SUFFIX, _UNFINISHED)) or not entry.is_file(follow_symlinks=False):
        return False
    stat = entry.stat(follow_symlinks=False)
    if stat.st_uid != os.getuid() or time.time() - stat.st_mtime < KEEP_SECONDS:
        return False
    fd = os.open(entry.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        return not _locked(fd) and _idle_seconds(fd) > KEEP_SECONDS
    finally:
        os.close(fd)


def _is_left_over_dump(entry: os.DirEntry[str]) -> bool:
    """Stacks whose ring is gone."""
    if not entry.name.endswith(ring.STACKS_SUFFIX) or not entry.is_file(follow_symlinks=False):
        return False
    stat = entry.stat(follow_symlinks=False)
    ended = not os.path.exists(entry.path.removesuffix(ring.STACKS_SUFFIX) + ring.SUFFIX)
    return ended and stat.st_uid == os.getuid() and time.time() - stat.st_mtime > KEEP_SECONDS


def _locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    return False


def _idle_seconds(fd: int) -> float:
    """How long ago the rank began its last step or part. The file's own times tell only when it was made."""
    header = os.pread(fd, ring.META_OFFSET, 0)
    if len(header) < ring.META_OFFSET:
        return float("inf")
    slots = struct.unpack(f"<{ring.META_OFFSET // 8}q", header)
    latest: int = max(slots[number] for number in (ring.CREATED_SLOT, ring.STEP_STARTED_SLOT, ring.PART_STARTED_SLOT))
    return (time.monotonic_ns() - latest) / 1e9


def _make_folder(folder: str) -> None:
    if os.path.isdir(folder):
        return
    os.makedirs(folder, exist_ok=True)
    try:
        os.chmod(folder, 0o1777)  # noqa: S103  ranks of other users need room here too
    except OSError:
        pass  # made by another rank a moment ago


def _write_header(mapping: mmap.mmap, meta: bytes) -> None:
    mapping[ring.META_OFFSET : ring.META_OFFSET + len(meta)] = meta
    struct.pack_into("<4q", mapping, 0, ring.MAGIC, time.monotonic_ns(), os.getpid(), len(meta))


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass  # gone already
