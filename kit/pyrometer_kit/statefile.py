"""State that must survive a restart: a folder, and one JSON object per file in it."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pyrometer_kit.errors import UsageError

log = logging.getLogger(__name__)

T = TypeVar("T")


MOST_BYTES = 64 << 20
# The path is not a folder: a mistake in the flag, which only another flag can fix.
_NO_FOLDER = (errno.ENOTDIR, errno.EEXIST)


def default_folder() -> Path:
    """Return the default folder of state files: what systemd sets (``StateDirectory=``), else /var/lib/pyrometer."""
    return Path(os.environ.get("STATE_DIRECTORY") or "/var/lib/pyrometer")


def state_folder(path: str | None, default: Path) -> Path | None:
    """Return the folder for state files, created when missing; None where the default one cannot be used.

    A folder ``path`` that the user asked for is returned though it can't be written now, after a warning: its
    content may still be readable, each failed save is reported, and a repaired disk is used again.

    Raises:
        UsageError: ``path`` leads to a file.
    """
    folder = Path(path) if path else default
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
        os.close(_created(probe))
        probe.unlink()
    except OSError as error:
        if not path:
            return None
        if error.errno in _NO_FOLDER:
            msg = f"--path.state: can't write to {folder}: {error.strerror}; give a folder this user may write to"
            raise UsageError(msg) from None
        log.warning("--path.state: can't write to %s: %s; until it can, counts restart with the exporter", folder,
                    error.strerror)  # fmt: skip
    return folder


class StateFile:
    """The file ``<folder>/<name>``; without a folder nothing is stored."""

    def __init__(self, folder: Path | None, name: str, *, version: int | None = None, mode: int | None = None) -> None:
        """Store objects of this ``version``: another one's file is set aside. None for those that have their own."""
        self._path = folder / name if folder else None
        self._version = version
        self._mode = mode  # whatever the umask is; None: as the umask allows
        self.unusable = False
        """True after a file that could not be read: its state is unknown, which is not the same as empty."""
        self.denied = False
        """True after a file that this user may not read: it may be whole, so it stays where it is."""

    @property
    def kept(self) -> bool:
        """True if anything is stored at all."""
        return self._path is not None

    def load(self, decode: Callable[[Mapping[str, Any]], T]) -> T | None:
        """Return the file's object as ``decode`` reads it; None where there is no file.

        ``decode`` raises ValueError, KeyError or TypeError for foreign data: then the file is set aside, with one
        warning.
        """
        if self._path is None:
            return None
        try:
            data = json.loads(read_regular(self._path))
            if self._version is not None and data["version"] != self._version:
                raise ValueError(f"version {data['version']!r} instead of {self._version}")
            return decode(data)
        except FileNotFoundError:
            return None
        except PermissionError as error:
            self.unusable = self.denied = True
            log.warning("%s can't be read; its counts restart at 0: %s", self._path, error.strerror)
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            self.unusable = True
            log.warning("%s can't be used; its counts restart at 0: %r", self._path, error)
            self._set_aside(self._path)
            return None

    def save(self, data: Mapping[str, Any]) -> None:
        """Replace the file's object with ``data``.

        Raises:
            OSError: It cannot be written.
        """
        self.replace(json.dumps(data if self._version is None else {"version": self._version, **data}))

    def replace(self, text: str) -> None:
        """Replace the file's text; a crash leaves the old or the new one whole.

        Raises:
            OSError: It cannot be written.
        """
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)  # it could not be made at the start
        new = self._path.with_name(f"{self._path.name}.new")
        with os.fdopen(_created(new), "w", encoding="utf-8") as file:
            if self._mode is not None:
                os.fchmod(file.fileno(), self._mode)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if self.denied:  # another user's state is not overwritten by this one's
            self._set_aside(self._path)
            self.denied = False
        new.replace(self._path)
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    @staticmethod
    def _set_aside(path: Path) -> None:
        with contextlib.suppress(OSError):
            path.replace(path.with_name(f"{path.name}.corrupt"))


def read_regular(path: Path) -> str:
    """Return the text of a state file.

    Raises:
        OSError: it can't be read, or is a link.
        ValueError: it is no regular file, has more than 64 MiB or is no UTF-8.
    """
    # The folder may be another user's, root's prolog may wait for us, and a FIFO's writer may never come.
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), encoding="utf-8") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > MOST_BYTES:
            raise ValueError(f"{path} is no regular file of at most {MOST_BYTES >> 20} MiB")
        return file.read(MOST_BYTES)


def _created(path: Path) -> int:
    """Return a descriptor of a new file in place of an old one.

    The folder may belong to another user while we run as root: a link planted there must not be followed.
    """
    path.unlink(missing_ok=True)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
