"""The form of a fuzz target."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

Check = Callable[[bytes], None]
"""Read one input and raise what the reader must never raise; a broken promise is an AssertionError."""


@dataclass(frozen=True)
class Target:
    """One reader of outside data.

    Attributes:
        name: as on the command line, and of its corpus file.
        reads: the data and who writes it.
        build: makes the check, given an empty folder and what is closed at the end; it imports what is tested, so that
            a fuzzer can watch it.
        seeds: valid inputs to start from.
        words: tokens of the format, which a fuzzer would have to guess.
        longest: bytes of the longest input.
    """

    name: str
    reads: str
    build: Callable[[Path, ExitStack], Check]
    seeds: tuple[bytes, ...]
    words: tuple[bytes, ...] = ()
    longest: int = 4096


class TracebackFound(AssertionError):  # noqa: N818  named for what it is in a report
    """Bad input was logged with a traceback instead of one line."""


class _NoTracebacks(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        """Raise if the record has a traceback."""
        if record.exc_info and record.exc_info[1] is not None:
            raise TracebackFound(record.getMessage()) from record.exc_info[1]


def forbid_tracebacks() -> None:
    """Make the log raise where a reader logs a traceback, and drop everything else."""
    root = logging.getLogger()
    root.handlers[:] = [_NoTracebacks()]
    root.setLevel(logging.ERROR)
