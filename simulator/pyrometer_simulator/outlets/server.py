"""The HTTP part that all stand-ins share: recorded calls, and faults of single calls."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from pyrometer_simulator.http_server import HttpServer, Request, Response, json_response

FaultKind: TypeAlias = Literal["status", "close_before", "close_after", "hang_after"]


@dataclass(frozen=True)
class Fault:
    """A fault of one call: `*_before` loses the request, `*_after` handles it and loses the answer."""

    kind: FaultKind
    status: int = 500
    seconds: float = 1.0
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Call:
    """One request that was handled, with its JSON body and the status of its answer."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Any
    status: int


class RefusedError(Exception):
    """The stand-in refuses a request with this status and document."""

    def __init__(self, status: int, document: Mapping[str, Any]) -> None:
        super().__init__(str(status))
        self.status, self.document = status, document


class FakeOutlet:
    """A server on loopback; `down` and `up` play an outage. A subclass handles what it is sent."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._faults: deque[Fault] = deque()
        self._lock = threading.Lock()
        self.released = threading.Event()
        self._port = 0
        self._server: HttpServer | None = None
        self.up()

    @property
    def url(self) -> str:
        """The server's address."""
        return f"http://127.0.0.1:{self._port}"

    def up(self) -> None:
        """Listen, after an outage on the same port."""
        self._server = HttpServer(self._respond, port=self._port).start()
        self._port = self._server.server_port

    def down(self) -> None:
        """Refuse connections."""
        if self._server is not None:
            self._server.stop()
            self._server = None

    def inject(self, kind: FaultKind, *, status: int = 500, seconds: float = 1.0, **headers: str) -> None:
        """Let the next call fail."""
        self._faults.append(Fault(kind, status, seconds, {name.replace("_", "-"): v for name, v in headers.items()}))

    def handle(self, request: Request, body: Any) -> tuple[int, Mapping[str, Any]]:  # noqa: ANN401  any JSON
        """Return the status and the document of the answer.

        Raises:
            RefusedError: The request is wrong.
        """
        raise NotImplementedError

    def _respond(self, request: Request) -> Response | None:
        fault = self._faults.popleft() if self._faults else None
        if fault is not None and fault.kind == "close_before":
            return None
        if fault is not None and fault.kind == "status":
            return json_response({"message": "fault"}, fault.status, fault.headers)
        with self._lock:
            status, document = self._handled(request)
        if fault is not None and fault.kind == "hang_after":
            self.released.wait(fault.seconds)
        if fault is not None:
            return None
        return json_response(document, status)

    def _handled(self, request: Request) -> tuple[int, Mapping[str, Any]]:
        try:
            body = json.loads(request.body)
        except ValueError:
            return 400, {"message": "no JSON"}
        try:
            status, document = self.handle(request, body)
        except RefusedError as refused:
            status, document = refused.status, refused.document
        headers = {name.lower(): str(value) for name, value in request.headers.items()}
        self.calls.append(Call(request.method, request.path, request.query, headers, body, status))
        return status, document

    def __enter__(self) -> FakeOutlet:  # noqa: PYI034  typing.Self needs Python 3.11
        """Return itself: it listens already."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop listening, and end the calls that hang."""
        self.released.set()
        self.down()
