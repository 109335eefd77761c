"""Deliveries that Alertmanager was told are taken, and that are still to be applied: one file each, in their order.

The database is not asked before Alertmanager has its answer: a delivery of 20,000 alerts is applied for seconds, and a
database that is broken or locked must not refuse what a disk can still take.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pyrometer_alerting.state.store import StoreError

MAX_BYTES = 512 << 20  # beyond, Alertmanager keeps its deliveries itself, and repeats them
FAILED = ".failed"


@dataclass(frozen=True)
class Letter:
    """A delivery on the disk: its file, and when it arrived in Unix seconds."""

    path: Path
    received_at: float

    def read(self) -> bytes:
        """Return the body as it came.

        Raises:
            OSError: the file cannot be read.
        """
        return self.path.read_bytes()


class Inbox:
    """The folder `inbox`; a delivery is in it from before its answer until it was applied."""

    def __init__(self, folder: Path) -> None:
        """Create the folder.

        Raises:
            StoreError: the disk does not let us.
        """
        self.folder = folder / "inbox"
        self._lock = threading.Lock()
        try:
            self.folder.mkdir(mode=0o700, exist_ok=True)
            for half in self.folder.glob("*.new"):
                half.unlink()
            self._sizes = {path: path.stat().st_size for path in self.folder.glob("*.json")}
        except OSError as error:
            raise StoreError(f"{self.folder}: {os.strerror(error.errno or 0)}") from None
        self._number = max((int(path.stem) for path in self._sizes), default=0)

    @property
    def depth(self) -> int:
        """How many deliveries wait."""
        return len(self._sizes)

    def left(self) -> list[Letter]:
        """Return what an earlier process left, in order."""
        return [Letter(path, path.stat().st_mtime) for path in sorted(self._sizes)]

    def put(self, body: bytes, now: float) -> Letter:
        """Write a delivery; it is on the disk when this returns.

        Raises:
            StoreError: it could not be written, or too much waits already.
        """
        with self._lock:
            if sum(self._sizes.values()) + len(body) > MAX_BYTES:
                raise StoreError(f"{self.folder}: {len(self._sizes)} deliveries wait already")
            self._number += 1
            path = self.folder / f"{self._number:012d}.json"
            self._sizes[path] = len(body)
        try:
            _write(path, body, now)
        except OSError as error:
            self._forget(path)
            raise StoreError(f"{self.folder}: {os.strerror(error.errno or 0)}") from None
        return Letter(path, now)

    def remove(self, letter: Letter) -> None:
        """Remove a delivery that was applied; one that stays is applied again, which changes nothing."""
        with suppress(OSError):
            letter.path.unlink()
        self._forget(letter.path)

    def set_aside(self, letter: Letter) -> None:
        """Keep a delivery that cannot be applied out of the way, for whoever looks into it."""
        with suppress(OSError):
            letter.path.rename(letter.path.with_suffix(FAILED))
        self._forget(letter.path)

    def _forget(self, path: Path) -> None:
        with self._lock:
            self._sizes.pop(path, None)


def _write(path: Path, body: bytes, now: float) -> None:
    new = path.with_suffix(".new")
    try:
        with new.open("wb") as file:
            file.write(body)
            file.flush()
            os.utime(file.fileno(), (now, now))
            os.fsync(file.fileno())
        new.replace(path)
    except OSError:
        with suppress(OSError):
            new.unlink()
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
