"""The store's engine: SQLite's file is one, PostgreSQL the other, with the same statements on both.

Statements have `?` for values and use what both engines understand: ON CONFLICT instead of INSERT OR REPLACE, CASE
instead of min() of two values, columns by name, no row without a condition of its own type.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol


class StoreError(Exception):
    """The store cannot be read or written now; the message names the file or the server."""


class NotLeadingError(StoreError):
    """Another process leads: this one must change nothing, and call nobody, any more."""


@dataclass(frozen=True)
class Loss:
    """A loss: its reason, where the old file is, since when changes may be missing, and the facts that were saved."""

    why: str
    kept: str
    since: float
    facts: dict[str, str] = field(default_factory=dict)


class Rows(Protocol):
    """The answer to a statement: a cursor."""

    @property
    def rowcount(self) -> int:
        """How many rows were changed."""
        ...

    def fetchone(self) -> Any:  # noqa: ANN401 - a row holds any types
        """Return the next row, None after the last one."""
        ...

    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """One connection inside a transaction."""

    def execute(self, statement: str, values: Sequence[Any] = ..., /) -> Rows:
        """Run one statement."""
        ...

    def executemany(self, statement: str, values: Iterable[Sequence[Any]], /) -> object:
        """Run one statement for each of several rows."""
        ...


class Engine(ABC):
    """One changes while others read beside it; every method raises one of `errors`, or StoreError.

    A method with a body takes care of a file; a server does that on its own.

    Attributes:
        name: the file, or the server without its password, for errors.
        loss: set when the database had to be replaced or lacks commits; taken by the store.
        leads: whether nobody else changes anything now.
    """

    name: str
    errors: tuple[type[Exception], ...]
    loss: Loss | None = None
    leads: Callable[[], bool] = staticmethod(lambda: True)

    @property
    def folder(self) -> Path | None:
        """Where files beside the database may lie; None for a server, which several share."""
        return None

    def open(self) -> None:  # noqa: B027 - whoever leads makes a server's tables, and one that is away is asked again
        """Open, check and upgrade the database."""

    @abstractmethod
    def begin(self, *, aside: bool = False) -> Connection:
        """Begin a change, the only one at a time; `aside` from the leader's, as a command makes one."""

    @abstractmethod
    def commit(self) -> None:
        """Make the change durable."""

    @abstractmethod
    def rollback(self) -> None:
        """Undo the change, where it is still open."""

    @abstractmethod
    def view(self) -> Connection:
        """Begin to read what is committed."""

    @abstractmethod
    def end_view(self) -> None:
        """End reading."""

    @abstractmethod
    def close(self) -> None:
        """Close everything."""

    def post(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:  # noqa: ARG002
        """Run one statement about a server's inbox, which needs no leader; it is durable when this returns."""
        raise StoreError(f"{self.name}: its inbox is a folder")

    def probe(self) -> bool:
        """Write something without a change; return False where that needs one: a file has one writer."""
        return False

    def shrink(self) -> None:  # noqa: B027
        """Return freed space."""

    def check(self) -> None:  # noqa: B027
        """Read everything again."""

    def back_up(self, now: float) -> None:  # noqa: B027
        """Copy the database once a day."""

    def backed_up_at(self) -> float | None:
        """Return when the newest copy was made; None without one."""
        return None

    def is_broken(self, error: Exception) -> bool:  # noqa: ARG002
        """Return whether only a new database helps."""
        return False

    def renew(self, why: str) -> None:
        """Begin a new database in the place of a broken one.

        Raises:
            StoreError: it is not ours to replace.
        """
        raise StoreError(f"{self.name}: {why}")


def reason(error: Exception) -> str:
    """Return what went wrong, in a few words and one line."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return " ".join(str(error).split())
