"""Ring files: make one safely (whole before it is visible, allocated before it is mapped), and remove stale ones."""

from __future__ import annotations

import fcntl
import mmap
import os
import stat
import struct
import time
from itertools import islice

from pyrometer import ring

_SHARED = 0o1002  # sticky, and open to all
# A finished ring stays long enough for the exporter to read its end, even after a restart of the exporter.
STALE_SECONDS = 600.0
# A job's start waits for it.
_CLEARING_SECONDS = 0.02
_MOST_LISTED = 10_000  # in 5 to 10 ms
_UNFINISHED = ".ring.new"


class GroupError(OSError):
    """The ring can't be given to the group that alone may read it."""


def safe_name(run: str) -> str:
    """Return a run's name as the beginning of a file name: ASCII, without separators, at most 64 characters."""
    return "".join(c if (c.isascii() and c.isalnum()) or c in "-_" else "_" for c in run)[:64]


def default_folder(shared: str = ring.DEFAULT_FOLDER) -> str:
    """Return the shared folder where it is safe, else one of this user's own beside it.

    The owner of a folder can remove everybody's rings, so a shared one must be root's (or a mount of its own, which
    only root makes). The exporter finds both; no other user can take the own one's name for good.

    Raises:
        OSError: no folder of this user's own can be made.
    """
    me = os.geteuid()
    try:
        found = os.lstat(shared)
    except FileNotFoundError:
        if me == 0:
            return shared  # create_ring makes it, open to all
    except OSError:
        pass
    else:
        # A link is not trusted: whoever made it can lead it to a disk, or to what another job writes.
        trusted = found.st_uid == me or (
            found.st_mode & _SHARED == _SHARED and (not found.st_uid or os.path.ismount(shared))
        )
        if stat.S_ISDIR(found.st_mode) and trusted:
            return shared
    return _own_folder(shared, me)


def _own_folder(shared: str, me: int) -> str:
    own = f"{shared}-{me}"
    if _made(own) or _is_own(own, me):
        return own
    parent, name = os.path.split(own)
    with os.scandir(parent) as entries:
        others = sorted([entry.path for entry in entries if entry.name.startswith(f"{name}.")])
    for path in others:
        if _is_own(path, me):
            return path
    own = f"{own}.{os.urandom(8).hex()}"  # somebody else has made a folder of our name
    _made(own)
    return own


def _made(path: str) -> bool:
    try:
        os.mkdir(path)
    except FileExistsError:
        return False
    _set_mode(path, 0o755)  # whatever the umask, the exporter reads it
    return True


def _set_mode(folder: str, mode: int) -> None:
    """Set the mode of a folder that we have just made, not of what its parent's owner has put in its place since."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(fd).st_uid == os.geteuid():
            os.fchmod(fd, mode)
    finally:
        os.close(fd)


def _is_own(path: str, me: int) -> bool:
    found = os.lstat(path)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == me


def create_ring(folder: str, name: str, description: bytes, group: str | None = "") -> tuple[mmap.mmap, int, str]:
    """Make a ring and lock it for as long as this process lives.

    The lock ends with the process, however that ends: this is how the exporter tells a dead rank from a slow one,
    across PID namespaces.

    Args:
        folder: made, open to all users, where it is missing.
        name: of the file, without its suffix.
        description: the run's description, as JSON.
        group: name or number of the only group that may read it; by default everybody on the node may, and with None
            nobody but its owner (and root).

    Returns:
        The mapping, the descriptor that holds the lock, and the path.

    Raises:
        GroupError: the file can't be given to the group.
        OSError: the folder can't be written or is full, or the description is too long.
    """
    if len(description) > ring.META_BYTES:
        raise OSError(f"the run's description is {len(description)} bytes long; {ring.META_BYTES} fit")
    _make_folder(folder)
    path = os.path.join(folder, name + ring.SUFFIX)
    hidden = os.path.join(folder, f".{name}{_UNFINISHED}")
    fd = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        # Writing to a page that a full /dev/shm can't provide is SIGBUS, the end of the job: take all pages now.
        os.posix_fallocate(fd, 0, ring.FILE_BYTES)
        _set_readers(fd, group)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        mapping = mmap.mmap(fd, ring.FILE_BYTES)
        _write_header(mapping, description)
        os.rename(hidden, path)
    except BaseException:
        os.close(fd)
        _remove(hidden)
        raise
    return mapping, fd, path


def _set_readers(fd: int, group: str | None) -> None:
    """Set who may read a file, whatever the umask.

    Raises:
        GroupError: no such group, or this user is not in it.
    """
    if not group:
        os.fchmod(fd, 0o600 if group is None else 0o644)
        return
    os.fchmod(fd, 0o640)
    try:
        os.fchown(fd, -1, _group_id(group))
    except OSError as error:
        raise GroupError(f"can't change the ring's group to {group}: {error.strerror or error}") from None


def _group_id(group: str) -> int:
    if group.isdecimal():
        return int(group)
    import grp  # noqa: PLC0415  needed by few

    try:
        return grp.getgrnam(group).gr_gid
    except (KeyError, ValueError):
        raise OSError("there is no such group") from None


def remove_stale_rings(folder: str) -> None:
    """Remove this user's rings and stack dumps whose ranks ended more than STALE_SECONDS ago.

    It ends after a moment: what is left of thousands goes at the next starts, each of which begins at another file.

    Raises:
        OSError: the folder can't be read.
    """
    until = time.monotonic() + _CLEARING_SECONDS
    with os.scandir(folder) as entries:
        found = list(islice(entries, _MOST_LISTED))
        first = int.from_bytes(os.urandom(4), "little") % max(1, len(found))
        for entry in found[first:] + found[:first]:
            if time.monotonic() > until:
                return
            try:
                if _is_stale_ring(entry) or _is_stale_dump(entry):
                    os.unlink(entry.path)
            except OSError:
                pass  # removed by another rank a moment ago, or unreadable: go on with the others


def _is_stale_ring(entry: os.DirEntry[str]) -> bool:
    # Includes the unfinished file of a rank that was killed while it made its ring.
    if not entry.name.endswith((ring.SUFFIX, _UNFINISHED)) or not entry.is_file(follow_symlinks=False):
        return False
    found = entry.stat(follow_symlinks=False)
    if found.st_uid != os.getuid() or time.time() - found.st_mtime < STALE_SECONDS:
        return False
    fd = os.open(entry.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        return not _is_locked(fd) and _idle_seconds(fd) > STALE_SECONDS
    finally:
        os.close(fd)


def _is_stale_dump(entry: os.DirEntry[str]) -> bool:
    """Return whether this is a stack dump whose ring is gone."""
    if not entry.name.endswith(ring.STACKS_SUFFIX) or not entry.is_file(follow_symlinks=False):
        return False
    found = entry.stat(follow_symlinks=False)
    ended = not os.path.exists(entry.path.removesuffix(ring.STACKS_SUFFIX) + ring.SUFFIX)
    return ended and found.st_uid == os.getuid() and time.time() - found.st_mtime > STALE_SECONDS


def _is_locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    return False


def _idle_seconds(fd: int) -> float:
    """Return the seconds since the rank began its last step or part. The file's own times say only when it was made."""
    header = os.pread(fd, ring.META_OFFSET, 0)
    if len(header) < ring.META_OFFSET:
        return float("inf")
    slots = struct.unpack(f"<{ring.META_OFFSET // 8}q", header)
    latest: int = max(slots[number] for number in (ring.CREATED_SLOT, ring.STEP_STARTED_SLOT, ring.PART_STARTED_SLOT))
    return (time.monotonic_ns() - latest) / 1e9


def _make_folder(folder: str) -> None:
    if os.path.isdir(folder):
        return
    os.makedirs(os.path.dirname(folder) or ".", exist_ok=True)
    try:
        os.mkdir(folder)
    except FileExistsError:
        return  # made by another rank a moment ago, or a link of a stranger's, which is no folder of ours to open
    _set_mode(folder, 0o1777)  # ranks of other users need room here too


def _write_header(mapping: mmap.mmap, description: bytes) -> None:
    mapping[ring.META_OFFSET : ring.META_OFFSET + len(description)] = description
    struct.pack_into(f"<{ring.EXIT_BYTES}s", mapping, 8 * ring.EXIT_SLOT, ring.SUDDEN_EXIT)
    struct.pack_into("<4q", mapping, 0, ring.MAGIC, time.monotonic_ns(), os.getpid(), len(description))


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass  # gone already
