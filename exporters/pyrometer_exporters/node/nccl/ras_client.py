"""Ask the RAS socket of a job: one question, one answer, within a deadline and a size, whoever listens there.

The conversation, in lines: ``CLIENT PROTOCOL 2`` - ``SERVER PROTOCOL 2``, ``TIMEOUT 5`` - ``OK``, ``SET FORMAT json`` -
``OK`` (``ERROR: ...`` before NCCL 2.28.7), ``STATUS`` - the report, after which the server closes the connection.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from pyrometer_exporters.framework.outcome import LATE, PartError, reason_of
from pyrometer_exporters.node.nccl.listener import owner_of_peer
from pyrometer_kit.flags import Address

MOST_BYTES = 64 * 1024 * 1024
"""The longest answer that is read: three times that of 4,096 ranks in eight communicators each."""
CHUNK_BYTES = 64 * 1024
# NCCL's own default: how long it waits for processes that don't answer. It gives up after twice that.
RAS_TIMEOUT_SECONDS = 5
CONNECT_SECONDS = 2.0
_MOST_LINE_BYTES = 4096


class NobodyListensError(Exception):
    """No process listens at the address: there is no job, or its RAS is off."""


class Conversation:
    """A connection to a RAS socket; a context manager. Every call ends by ``until``, in monotonic seconds."""

    def __init__(self, address: Address, until: float) -> None:
        """Connect.

        Raises:
            NobodyListensError: nobody listens there.
            PartError: the address can't be connected to.
        """
        self._until = until
        self._received = b""
        try:
            self._socket = socket.create_connection(address, min(CONNECT_SECONDS, self._left()))
        except ConnectionRefusedError:
            raise NobodyListensError from None
        except (OSError, UnicodeError) as error:
            raise _part_error(error) from None

    def __enter__(self) -> Conversation:  # noqa: PYI034  typing.Self needs Python 3.11
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def owner(self, procfs: Path) -> int | None:
        """Return the user who answers, once somebody has; None where that is another machine's."""
        return owner_of_peer(procfs, self._socket)

    def status(self) -> tuple[str, Iterator[bytes]]:
        """Ask for the status; return its form, ``json`` or ``text``, and the chunks of the answer.

        Raises:
            PartError: whoever listens doesn't speak this protocol, or not in time.
        """
        hello = self._say("CLIENT PROTOCOL 2")
        if not hello.upper().startswith("SERVER PROTOCOL "):
            raise PartError("protocol", f"not NCCL RAS: it answered {hello[:60]!r}")
        self._say(f"TIMEOUT {RAS_TIMEOUT_SECONDS}")
        form = "json" if self._say("SET FORMAT json").upper() == "OK" else "text"
        self._send("STATUS" if form == "json" else "VERBOSE STATUS")
        return form, self._chunks()

    def _say(self, line: str) -> str:
        self._send(line)
        while b"\n" not in self._received:
            chunk = self._receive()
            self._received += chunk
            if not chunk or (b"\n" not in chunk and len(self._received) > _MOST_LINE_BYTES):
                raise PartError("protocol", f"not NCCL RAS: no line in answer to {line!r}")
        answer, _, self._received = self._received.partition(b"\n")
        return answer.decode("utf-8", "replace").strip()

    def _send(self, line: str) -> None:
        try:
            self._socket.settimeout(self._left())
            self._socket.sendall(f"{line}\n".encode())
        except OSError as error:
            raise _part_error(error) from None

    def _chunks(self) -> Iterator[bytes]:
        size, chunk = 0, self._received
        self._received = b""
        while True:
            size += len(chunk)
            if size > MOST_BYTES:
                raise PartError("too_large", f"the answer has more than {MOST_BYTES} bytes")
            if chunk:
                yield chunk
            chunk = self._receive()
            if not chunk:
                return

    def _receive(self) -> bytes:
        try:
            self._socket.settimeout(self._left())
            return self._socket.recv(CHUNK_BYTES)
        except OSError as error:
            raise _part_error(error) from None

    def _left(self) -> float:
        left = self._until - time.monotonic()
        if left <= 0:
            raise PartError(LATE, "the answer took too long")
        return left


def _part_error(error: Exception) -> PartError:
    if isinstance(error, TimeoutError):
        return PartError(LATE, "no answer in time")
    return PartError(reason_of(error), str(error))
