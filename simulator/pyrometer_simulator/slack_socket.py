"""Slack's side of Socket Mode: a WebSocket server (RFC 6455) that sends envelopes and records their acks."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import socket
import struct
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, section 1.3
_TEXT, _CLOSE, _PING, _PONG = 0x1, 0x8, 0x9, 0xA


@dataclass(frozen=True)
class Ack:
    """The app's answer to an envelope, and the seconds until it came (Slack waits for three)."""

    seconds: float
    payload: Mapping[str, Any] = field(default_factory=dict)


class SocketServer:
    """Listen on a loopback port from `up` to `down`."""

    def __init__(self) -> None:
        self._listener: socket.socket | None = None
        self._clients: list[socket.socket] = []
        self.choose: Callable[[list[socket.socket]], socket.socket] = lambda clients: clients[-1]
        """Which of several connections gets an envelope: Slack may take any."""
        self._sent: dict[str, float] = {}
        self._lock = threading.Lock()
        self.acks: dict[str, Ack] = {}

    @property
    def url(self) -> str:
        """The address that apps.connections.open returns."""
        assert self._listener is not None, "the server is not up"  # noqa: S101 - a mistake of the caller
        return f"ws://127.0.0.1:{self._listener.getsockname()[1]}/link?ticket=secret-ticket"

    @property
    def connected(self) -> int:
        """The number of connected apps."""
        return len(self._clients)

    def up(self) -> None:
        """Start to listen."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, args=(self._listener,), name="fake-slack-socket", daemon=True).start()

    def down(self) -> None:
        """Close all connections and stop listening."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        self.hang_up()

    def hang_up(self) -> None:
        """Close all connections."""
        for client in list(self._clients):
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
            client.close()
        self._clients.clear()

    def refresh(self) -> None:
        """Ask the apps to reconnect, as Slack does every few hours."""
        for client in list(self._clients):
            self._frame(client, _TEXT, b'{"type": "disconnect", "reason": "refresh_requested"}')

    def send(self, kind: str, payload: Mapping[str, Any]) -> str:
        """Send an envelope to one connected app and return its id.

        Raises:
            ConnectionError: no app is connected.
        """
        if not self._clients:
            raise ConnectionError("no app is connected")
        envelope = str(uuid.uuid4())
        document = {"envelope_id": envelope, "type": kind, "payload": payload, "accepts_response_payload": True}
        self._sent[envelope] = time.monotonic()
        self._frame(self.choose(list(self._clients)), _TEXT, json.dumps(document).encode())
        return envelope

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _address = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), name="fake-slack-client", daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError):
            stream = client.makefile("rb")
            headers = {}
            while (line := stream.readline().strip()) != b"":
                name, _, value = line.partition(b":")
                headers[name.strip().lower()] = value.strip()
            key = headers[b"sec-websocket-key"].decode() + _GUID
            accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()  # noqa: S324 - RFC 6455 says so
            client.sendall(
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                f"Sec-WebSocket-Accept: {accept}\r\n\r\n".encode()
            )
            self._clients.append(client)
            self._frame(client, _TEXT, b'{"type": "hello", "num_connections": 1}')
            while (frame := _read(stream)) is not None:
                self._take(client, *frame)
        if client in self._clients:
            self._clients.remove(client)
        client.close()

    def _take(self, client: socket.socket, opcode: int, content: bytes) -> None:
        if opcode == _PING:
            self._frame(client, _PONG, content)
        elif opcode == _CLOSE:
            raise OSError("closed")
        elif opcode == _TEXT:
            document = json.loads(content)
            envelope = str(document["envelope_id"])
            took = time.monotonic() - self._sent[envelope]
            self.acks[envelope] = Ack(took, document.get("payload") or {})

    def _frame(self, client: socket.socket, opcode: int, content: bytes) -> None:
        length = len(content)
        if length < 126:
            head = struct.pack("!BB", 0x80 | opcode, length)
        elif length < 1 << 16:
            head = struct.pack("!BBH", 0x80 | opcode, 126, length)
        else:
            head = struct.pack("!BBQ", 0x80 | opcode, 127, length)
        with self._lock:
            client.sendall(head + content)


def _read(stream: Any) -> tuple[int, bytes] | None:  # noqa: ANN401 - a buffered reader
    """Return a client's frame as (opcode, unmasked content); None at the end."""
    head = stream.read(2)
    if len(head) < 2:
        return None
    length = head[1] & 0x7F
    if length == 126:
        (length,) = struct.unpack("!H", stream.read(2))
    elif length == 127:
        (length,) = struct.unpack("!Q", stream.read(8))
    mask = stream.read(4) if head[1] & 0x80 else b"\0\0\0\0"
    content = stream.read(length)
    return head[0] & 0x0F, bytes(byte ^ mask[index % 4] for index, byte in enumerate(content))
