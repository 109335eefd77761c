"""Read the body of a service's response within limits of time and size: the clients' own timeouts apply per read."""

from __future__ import annotations

import time
from typing import Protocol

_CHUNK = 1 << 16


class Answer(Protocol):
    """A response of :mod:`http.client` or urllib3, which can return the bytes received so far."""

    def read1(self, amount: int, /) -> bytes:
        """Return at most that many bytes after at most one read; none at the end."""
        ...


class TooLargeError(Exception):
    """The body is larger than the limit."""


def read_whole(answer: Answer, most: int, until: float) -> bytes:
    """Return the body.

    Args:
        answer: read one chunk at a time, because a longer read waits for all of its bytes.
        most: its limit in bytes.
        until: deadline by the monotonic clock.

    Raises:
        TimeoutError: it arrives too slowly.
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
