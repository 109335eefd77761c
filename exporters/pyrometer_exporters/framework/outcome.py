"""The result of reading a part that may fail: a value, or the reason why there is none."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

LATE = "deadline"
"""The reason of a part that has not answered in time."""


class PartError(Exception):
    """A part that can't be read, with the short fixed word that becomes the ``reason`` label."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(detail or reason)
        self.reason = reason
        self.detail = detail


@dataclass(slots=True)  # not frozen: each scrape makes one for each part
class Outcome(Generic[T]):
    """Either a value, or the reason why there is none; ``seconds`` is how long the job ran, waiting not included."""

    value: T | None
    reason: str | None = None
    detail: str = ""
    seconds: float = 0.0


def reason_of(error: BaseException) -> str:
    """Return a fixed word for an exception, fit for a label: errno names in lower case, else the class name.

    >>> reason_of(OSError(5, "Input/output error"))
    'eio'
    """
    if isinstance(error, OSError) and error.errno is not None:
        return errno.errorcode.get(error.errno, "oserror").lower()
    return type(error).__name__.lower()
