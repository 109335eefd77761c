"""Deliveries that were acknowledged to Alertmanager but not yet applied: one file each, in order.

The database is not used before Alertmanager has its answer: applying a delivery of 20,000 alerts takes seconds, and a
database that is broken or locked must not refuse what a disk can still take.
"""

from __future__ import annotations

import os
import queue
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pyrometer_alerting.incidents.storage.engine import reason
from pyrometer_alerting.incidents.storage.store import NotLeadingError, Store, StoreError

MAX_BYTES = 512 << 20  # beyond this limit Alertmanager keeps its deliveries and repeats them
FAILED = ".failed"


@dataclass(frozen=True)
class Letter:
    """A delivery or a click that is durable: its file, or its number in the table, and its time in Unix seconds."""

    path: Path
    received_at: float

    def read(self) -> bytes:
        """Return the body as it came.

        Raises:
            OSError: the file cannot be read.
        """
        return self.path.read_bytes()


class Post(Protocol):
    """The waiting letters, in the order of their arrival."""

    @property
    def depth(self) -> int:
        """How many wait."""
        ...

    def put(self, body: bytes, now: float) -> Letter:
        """Write a letter; it is durable when this returns.

        Raises:
            StoreError: it may not be.
        """
        ...

    def announce(self, letter: Letter) -> None:
        """Let `next` return it."""

    def next(self) -> Letter | None:
        """Return the next letter as soon as there is one; None after `stop`."""
        ...

    def left(self) -> Sequence[Letter]:
        """Return the waiting letters."""
        ...

    def read(self, letter: Letter) -> bytes:
        """Return the body.

        Raises:
            StoreError, OSError: it cannot be read.
        """
        ...

    def remove(self, letter: Letter) -> None:
        """Remove a letter that was applied; one that stays is applied again, which changes nothing."""

    def set_aside(self, letter: Letter) -> None:
        """Set aside a letter that cannot be applied."""

    def stop(self) -> None:
        """Let `next` return None."""


def post_of(store: Store, box: str = "inbox") -> Post:
    """Return where letters of a kind are kept: in a folder beside the store's file, or in the server's table.

    Raises:
        StoreError: the disk refuses it.
    """
    return Inbox(store.folder, box) if store.engine.folder is not None else SharedInbox(store, box)


class Inbox:
    """The folder `inbox`; a delivery is in it from before its answer until it was applied."""

    def __init__(self, folder: Path, box: str = "inbox") -> None:
        """Create the folder.

        Raises:
            StoreError: the disk refuses it.
        """
        self.folder = folder / box
        self._lock = threading.Lock()
        self._queue: queue.SimpleQueue[Letter | None] = queue.SimpleQueue()
        try:
            self.folder.mkdir(mode=0o700, exist_ok=True)
            for half in self.folder.glob("*.new"):
                half.unlink()
            self._sizes = {path: path.stat().st_size for path in self.folder.glob("*.json")}
        except OSError as error:
            raise StoreError(f"{self.folder}: {os.strerror(error.errno or 0)}") from None
        self._number = max((int(path.stem) for path in self._sizes), default=0)
        for letter in self.left():
            self.announce(letter)

    def announce(self, letter: Letter) -> None:
        """See `Post.announce`."""
        self._queue.put(letter)

    def next(self) -> Letter | None:
        """See `Post.next`."""
        return self._queue.get()

    def read(self, letter: Letter) -> bytes:
        """See `Post.read`."""
        return letter.read()

    def stop(self) -> None:
        """See `Post.stop`."""
        self._queue.put(None)

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
            StoreError: it could not be written, or too many are waiting.
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
        """Set aside a delivery that cannot be applied, for later inspection."""
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


# How often the leader checks for letters that other replicas accepted: half of the time in which alerts may join
# before a first post.
LOOK_SECONDS = 0.2
_MOST_READ = 100


class SharedInbox:
    """The server's table: every replica writes, the leader reads."""

    def __init__(self, store: Store, box: str) -> None:
        self._store, self._box = store, box
        self._wake = threading.Event()
        self._stopped = False
        self._ready: deque[Letter] = deque()
        self._lock = threading.Lock()
        self._handed: set[Letter] = set()
        """What `next` returned, until it is removed."""
        self._undeleted: deque[Letter] = deque()
        self.depth = 0
        """How many waited when the leader last looked."""

    def put(self, body: bytes, now: float) -> Letter:
        """See `Post.put`."""
        query = "INSERT INTO inbox (box, received_at, body) VALUES (?, ?, ?) RETURNING seq"
        ((seq,),) = self._ask(query, self._box, now, body)
        return Letter(Path(str(seq)), now)

    def announce(self, letter: Letter) -> None:  # noqa: ARG002 - it is in the table
        """See `Post.announce`."""
        self._wake.set()

    def next(self) -> Letter | None:
        """See `Post.next`; while the server does not answer, there is none."""
        with self._lock:
            while not self._stopped:
                self._wake.clear()
                if not self._ready:
                    with suppress(StoreError):
                        self._ready.extend(letter for letter in self.left() if letter not in self._handed)
                if self._ready:
                    letter = self._ready.popleft()
                    self._handed.add(letter)
                    return letter
                self._wake.wait(LOOK_SECONDS)
        return None

    def left(self) -> Sequence[Letter]:
        """See `Post.left`: the first of them.

        Raises:
            StoreError: the server does not answer.
        """
        while self._undeleted:
            self._delete(self._undeleted[0])
            self._undeleted.popleft()
        query = "SELECT seq, received_at FROM inbox WHERE box = ? ORDER BY seq LIMIT ?"
        rows = self._ask(query, self._box, _MOST_READ)
        self.depth = len(rows)
        return [Letter(Path(str(seq)), at) for seq, at in rows]

    def read(self, letter: Letter) -> bytes:
        """See `Post.read`."""
        rows = self._ask("SELECT body FROM inbox WHERE seq = ?", int(letter.path.name))
        if not rows:
            raise NotLeadingError(f"{self._store.engine.name}: another replica has applied it")
        return bytes(rows[0][0])

    def remove(self, letter: Letter) -> None:
        """See `Post.remove`."""
        try:
            self._delete(letter)
        except StoreError:
            self._undeleted.append(letter)

    def set_aside(self, letter: Letter) -> None:
        """See `Post.set_aside`."""
        with suppress(StoreError):
            self._ask("UPDATE inbox SET box = ? WHERE seq = ?", self._box + FAILED, int(letter.path.name))

    def stop(self) -> None:
        """See `Post.stop`."""
        self._stopped = True
        self._wake.set()

    def _delete(self, letter: Letter) -> None:
        self._ask("DELETE FROM inbox WHERE seq = ?", int(letter.path.name))
        self._handed.discard(letter)

    def _ask(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:  # noqa: ANN401
        engine = self._store.engine
        try:
            return engine.post(statement, values)
        except engine.errors as error:
            raise StoreError(f"{engine.name}: {reason(error)}") from error
