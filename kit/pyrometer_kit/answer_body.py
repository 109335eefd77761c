"""Read the body of another service's answer within a time and a size: clients' own timeouts are per read."""

from __future__ import annotations

import time
from typing import Protocol

_CHUNK = 1 << 16


class Answer(Protocol):
    """An answer of :mod:`http.client` or urllib3, which has what was sent so far."""

    def read1(self, amount: int, /) -> bytes:
        """Return at most so many bytes, after one read at most; none at the end."""
        ...


class TooLargeError(Exception):
    """The body is larger than is read."""


def read_whole(answer: Answer, most: int, until: float) -> bytes:
    """Return the body.

    Args:
        answer: read by one read at a time, as a longer one waits for all of its bytes.
        most: bytes of it.
        until: deadline by the monotonic clock.

    Raises:
        TimeoutError: it comes too slowly.
        TooLargeError: it has more than ``most`` bytes.
    """
    body = bytearray()
    while piece := answer.read1(_CHUNK):
        body += piece
        if time.monotonic() > until:
            raise TimeoutError("the answer came too slowly")
        if len(body) > most:
            raise TooLargeError(f"the answer is larger than {most} bytes")
    return bytes(body)
