"""The body of a request: by its length or in chunks (a proxy may send those), bounded in size and time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

from pyrometer_kit.http_connection import Connection, HeaderTooLargeError
from pyrometer_kit.http_message import BadRequestError, Request

BODY_SECONDS = 10.0  # Alertmanager's own deadline for a delivery is 10 s or more
# A body that is too large is read and discarded up to here: otherwise the connection is reset before the client reads
# the answer.
MAX_DISCARDED_BYTES = 256 << 20
_PIECE = 1 << 18
# The limit for all requests together; ordinary deliveries don't count, so large ones cannot keep them out.
MAX_BODIES_BYTES, UNCOUNTED_BYTES = 48 << 20, 1 << 18


class Room:
    """The memory that all large bodies of a server may take together."""

    def __init__(self) -> None:
        self._taken = 0

    @contextmanager
    def share(self) -> Iterator[Callable[[int], None]]:
        """Give a request its share until it is answered: a function that makes room for a body of a size.

        Raises:
            BadRequestError: Other bodies take all of it.
        """
        share = 0

        def grow(size: int) -> None:
            nonlocal share
            more = max(0, size - UNCOUNTED_BYTES - share)
            if more and self._taken + more > MAX_BODIES_BYTES:
                raise BadRequestError(503, "too many large bodies at a time")
            share += more
            self._taken += more

        try:
            yield grow
        finally:
            self._taken -= share


def declared_length(request: Request) -> int | None:
    """Return the length of the body that a request declares; None for chunks.

    Raises:
        BadRequestError: The header cannot be served.
    """
    if "transfer-encoding" in request.headers:
        if request.headers["transfer-encoding"].lower() != "chunked":
            raise BadRequestError(501, "the transfer encoding is not chunked")
        return None
    length = request.headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit()):
        raise BadRequestError(400, "Content-Length is not a number")
    return int(length) if len(length) <= 18 else 10**18


async def read_body(
    connection: Connection, request: Request, max_bytes: int, grow: Callable[[int], None]
) -> bytes | None:
    """Return the body, for which ``grow`` makes room; None where it was larger than ``max_bytes`` and was discarded.

    Raises:
        BadRequestError: It is malformed, larger than MAX_DISCARDED_BYTES, or one of too many.
        asyncio.TimeoutError: It did not come within BODY_SECONDS.
        ConnectionError: The client sent half of it.
    """
    until = asyncio.get_running_loop().time() + BODY_SECONDS
    length = declared_length(request)
    pieces = _chunks(connection, until) if length is None else _counted(connection, length, until)
    body, total = bytearray(), 0
    try:
        async for piece in pieces:
            total += len(piece)
            if total <= max_bytes:
                grow(total)
                body += piece
            elif total > MAX_DISCARDED_BYTES:
                raise _too_large()
    except HeaderTooLargeError:
        raise BadRequestError(400, "a chunk's header is too long") from None
    return bytes(body) if total <= max_bytes else None


async def _counted(connection: Connection, length: int, until: float) -> AsyncIterator[bytes]:
    if length > MAX_DISCARDED_BYTES:
        raise _too_large()
    while length > 0:
        piece = await connection.some(min(length, _PIECE), until)
        length -= len(piece)
        yield piece


async def _chunks(connection: Connection, until: float) -> AsyncIterator[bytes]:
    while (size := _chunk_size(await connection.line(until))) > 0:
        async for piece in _counted(connection, size, until):
            yield piece
        if await connection.line(until):
            raise BadRequestError(400, "a chunk is longer than its size")
    while await connection.line(until):
        pass  # trailers


def _chunk_size(line: bytes) -> int:
    digits = line.partition(b";")[0].strip()
    if not digits or len(digits) > 8 or not all(char in b"0123456789abcdefABCDEF" for char in digits):
        raise BadRequestError(400, "a chunk's size is not a number")
    return int(digits, 16)


def _too_large() -> BadRequestError:
    return BadRequestError(413, f"the body is larger than {MAX_DISCARDED_BYTES >> 20} MiB")
