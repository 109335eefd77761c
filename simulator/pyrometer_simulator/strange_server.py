"""An HTTP server that answers as no service should: it redirects, trickles, or never ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self

Answer = Callable[["Handler"], None]
_CHUNK = b"a" * 65_536
_TRICKLE_SECONDS = 0.05


class StrangeServer(ThreadingHTTPServer):
    """Listens on loopback between ``with`` and its end.

    ``asked`` has the headers of each request, its ``:path``, its ``:body`` and its client's ``:port``.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, answer: Answer) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer = answer
        self.asked: list[dict[str, str]] = []
        self.ended = threading.Event()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True)

    @property
    def place(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.shutdown()
        self.server_close()
        self._thread.join()


class Handler(BaseHTTPRequestHandler):
    """Notes the request, and lets the server's ``answer`` do the rest."""

    server: StrangeServer  # pyright: ignore[reportIncompatibleVariableOverride]  the only one that it serves

    def do_GET(self) -> None:
        """Answer."""
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode("latin-1")
        self.server.asked.append({**headers, ":path": self.path, ":port": str(self.client_address[1]), ":body": body})
        with suppress(OSError):  # they hung up
            self.server.answer(self)

    do_POST = do_DELETE = do_GET  # noqa: N815  the base class looks for them

    def begin(self, status: int = 200, **headers: str) -> None:
        """Send the status and the headers."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class names it so
        """Log nothing."""


def says(body: bytes, status: int = 200, **headers: str) -> Answer:
    """Return an answer that is one."""

    def answer(handler: Handler) -> None:
        handler.begin(status, Content_Length=str(len(body)), **headers)
        handler.wfile.write(body)

    return answer


def leads_to(location: str, status: int = 302) -> Answer:
    """Return a redirect."""
    return lambda handler: handler.begin(status, Location=location, Content_Length="0")


def begins_without_end() -> Answer:
    """Return an answer whose header comes byte by byte."""

    def answer(handler: Handler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
        while not handler.server.ended.wait(_TRICKLE_SECONDS):
            handler.wfile.write(b"a")

    return answer


def trickles(status: int = 200) -> Answer:
    """Return an answer whose body comes byte by byte."""

    def answer(handler: Handler) -> None:
        handler.begin(status)
        while not handler.server.ended.wait(_TRICKLE_SECONDS):
            handler.wfile.write(b"a")

    return answer


def never_ends(status: int = 200) -> Answer:
    """Return an answer whose body comes as fast as it is read, for ever."""

    def answer(handler: Handler) -> None:
        handler.begin(status)
        while not handler.server.ended.is_set():
            handler.wfile.write(_CHUNK)

    return answer
