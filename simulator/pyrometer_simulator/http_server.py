"""An HTTP server for the simulators: one function from a request to a response, each request in a thread of its own."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.message import Message
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    from typing_extensions import Self

MAX_BODY_BYTES = 4 << 20


@dataclass(frozen=True)
class Request:
    """One request; ``query`` has the last value of each parameter."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Message
    body: bytes


@dataclass(frozen=True)
class Response:
    """One response; the server adds its length."""

    body: bytes
    status: int = 200
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)


Responder: TypeAlias = Callable[[Request], Response | None]
"""Answers a request; None closes the connection without an answer."""


def json_response(document: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a document as a JSON response."""
    return Response(json.dumps(document).encode(), status, "application/json; charset=utf-8", headers or {})


class HttpServer(ThreadingHTTPServer):
    """Serve ``respond`` on ``host`` from :meth:`start` or ``with`` on; port 0 takes a free one, see ``server_port``.

    Raises:
        OSError: the port is taken.
    """

    # A response that hangs on purpose must not keep the process alive.
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, respond: Responder, host: str = "127.0.0.1", port: int = 0) -> None:
        super().__init__((host, port), partial(_Handler, respond))
        self.url = f"http://{host}:{self.server_port}"
        """Without a slash at its end."""

    def start(self) -> Self:
        """Serve in a thread of its own."""
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), name="http", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Refuse connections from now on."""
        self.shutdown()
        self.server_close()
        self._thread.join(5)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


class _Handler(BaseHTTPRequestHandler):
    timeout = 30

    def __init__(self, respond: Responder, *arguments: Any) -> None:  # noqa: ANN401  http.server's own
        self._respond = respond
        super().__init__(*arguments)

    def do_GET(self) -> None:  # http.server's name
        self._answer(b"")

    def do_POST(self) -> None:  # http.server's name
        self._answer(self.rfile.read(min(int(self.headers.get("Content-Length") or 0), MAX_BODY_BYTES)))

    def do_PUT(self) -> None:  # http.server's name
        self.do_POST()

    def _answer(self, body: bytes) -> None:
        parts = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        response = self._respond(Request(self.command, parts.path, query, self.headers, body))
        with contextlib.suppress(OSError):  # the client may have given up
            if response is None:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
            else:
                self._send(response)

    def _send(self, response: Response) -> None:
        self.send_response(response.status)
        for name, value in response.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", response.content_type)
        self.send_header("Content-Length", str(len(response.body)))
        self.end_headers()
        self.wfile.write(response.body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """Log nothing: simulators record requests themselves."""
