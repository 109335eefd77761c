"""HTTP/1 requests and responses: the types, the parser of headers, and the writer of answers.

The parser is not h11: that accepts folded lines, a bare line feed and two ways to give a length, through which a proxy
and we may read two different requests (docs/threat-model.md: refused), and takes 43 µs a header instead of 8.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from pyrometer_kit.auth import BearerTokens

MAX_FIELDS = 32
_SINGLE = frozenset({"content-length", "transfer-encoding", "host", "authorization"})
# A name of visible characters, no line folded, no control character that a proxy may take for a line's end.
_REQUEST = re.compile(rb"(\S+) (\S+) (HTTP/1\.\d)\r\n((?:[!-9;-~]+:[^\0\r\n]*\r\n)*)\r\n")
GZIP_FROM = 1400  # bytes; smaller answers fit into one packet
READ_METHODS = ("GET", "HEAD")
TEXT = "text/plain; charset=utf-8"

_REASONS = {
    200: "OK", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed",
    413: "Content Too Large", 429: "Too Many Requests", 431: "Request Header Fields Too Large",
    500: "Internal Server Error", 501: "Not Implemented", 503: "Service Unavailable",
}  # fmt: skip
# The characters that urllib.parse would leave as they are.
_PLAIN = frozenset("/?&=-._~:,@!$'()*abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")


@dataclass(frozen=True)
class Request:
    """A request; header names are in lower case.

    ``oversized``: the body was larger than its route takes and was discarded. ``peer`` is the client's address.
    """

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    oversized: bool = False
    query: Mapping[str, str] = field(default_factory=dict)
    version: str = "HTTP/1.1"
    peer: str = ""

    @property
    def has_body(self) -> bool:
        """True if bytes of a body may follow the header."""
        return "content-length" in self.headers or "transfer-encoding" in self.headers

    @property
    def may_continue(self) -> bool:
        """True if the client wants to send another request on the connection."""
        return self.version == "HTTP/1.1" and self.headers.get("connection", "").lower() != "close"


@dataclass(frozen=True)
class Response:
    """An answer; ``delivered`` is called once, with whether the client received all of it.

    A full kernel buffer is no proof: it holds megabytes that are never read if the client gives up. The proof is the
    next request on the same connection, or a hang-up with nothing left unread. The latter is no proof of a scraper:
    that keeps its connection after a successful scrape, and hangs up when its timeout strikes.
    """

    status: int
    body: bytes = b""
    content_type: str = TEXT
    headers: Mapping[str, str] = field(default_factory=dict)
    delivered: Callable[[bool], None] | None = None


Handler = Callable[[Request], Awaitable[Response]]
BlockingHandler = Callable[[Request], Response]
H = TypeVar("H", Handler, BlockingHandler)


@dataclass(frozen=True)
class Route(Generic[H]):
    """A path's handler, its methods, and the largest body that it takes in bytes (0: it takes none).

    ``takes_oversized``: a larger body is thrown away and the handler decides; otherwise the answer is 413.
    ``tokens`` open this route beside the users. ``any_name``: programs ask for it by whatever name: it has nothing
    of anybody; where nobody must log in, the others are shown under our own names alone.
    """

    handler: H
    methods: tuple[str, ...] = READ_METHODS
    max_body: int = 0
    takes_oversized: bool = False
    tokens: BearerTokens | None = None
    any_name: bool = False


class BadRequestError(Exception):
    """A request that is answered with ``status`` and one line, and ends its connection."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def text(status: int, message: str, **headers: str) -> Response:
    """Return a plain text answer; underscores in header names become hyphens."""
    return Response(
        status, f"{message}\n".encode(), headers={name.replace("_", "-"): value for name, value in headers.items()}
    )


def parse_request(header: bytes, peer: str = "") -> Request:
    """Parse the header of a request, up to its empty line.

    Raises:
        BadRequestError: It is no HTTP/1 request.
    """
    match = _REQUEST.fullmatch(header)
    if match is None:
        raise BadRequestError(400, "not an HTTP/1 request, or one with a header line that other readers may take apart")
    method, target, version, lines = (part.decode("latin-1") for part in match.groups())
    fields = [line.partition(":") for line in lines.split("\r\n")[:-1]]
    names = [name.lower() for name, _, _ in fields]
    headers = {name: value.strip() for name, (_, _, value) in zip(names, fields, strict=True)}
    if any(names.count(name) > 1 for name in _SINGLE) or {"content-length", "transfer-encoding"} <= headers.keys():
        # A proxy in front of us that trusts the other one mistakes part of the body for another request.
        raise BadRequestError(400, "a header field that there can be one of comes twice, or two of a length")
    try:
        path, query = parse_target(target, headers.get("host", ""))
    except ValueError:
        raise BadRequestError(400, "the request target cannot be parsed, or names another host") from None
    return Request(method, path, headers, query=query, version=version, peer=peer)


def parse_target(target: str, host: str = "") -> tuple[str, dict[str, str]]:
    """Return the path and the parameters of a request's target; two slashes at its begin are of the path.

    A proxy that allows some paths takes them for that, and one that is sent a whole URL obeys the host in it.

    Raises:
        ValueError: It cannot be parsed, names another host than the header does, or has too many parameters.
    """
    if target[:1] != "/" or target[:2] == "//" or not _PLAIN.issuperset(target):
        from urllib.parse import parse_qsl, urlsplit  # noqa: PLC0415  memory that scrapes need not spend

        url = urlsplit(f"http://{host}{target}" if target[:1] == "/" else target)
        if url.netloc not in ("", host):
            msg = "another host"
            raise ValueError(msg)
        return url.path, dict(parse_qsl(url.query, max_num_fields=MAX_FIELDS))
    path, _, query = target.partition("?")
    pairs = [pair.partition("=") for pair in query.split("&")]
    if len(pairs) > MAX_FIELDS:
        msg = "too many fields"
        raise ValueError(msg)
    return path, {name: value for name, _, value in pairs if value}


def render(response: Response, extra: Mapping[str, str], *, keep: bool, head: bool, zipped: bool) -> bytes:
    """Return the bytes of an answer; ``extra`` are the site's headers, which win over the answer's own.

    ``keep``: the connection stays open; ``head``: without the body; ``zipped``: compressed if that pays off.
    """
    zipped = zipped and len(response.body) >= GZIP_FROM
    # Level 1: the higher ones take many times as long for little less.
    body = gzip.compress(response.body, 1) if zipped else response.body
    headers = {
        "Content-Type": response.content_type,
        "Content-Length": str(len(body)),
        "X-Content-Type-Options": "nosniff",
        "Connection": "keep-alive" if keep else "close",
        **response.headers,
        **extra,
    }
    if zipped:
        headers["Content-Encoding"] = "gzip"
    lines = [f"HTTP/1.1 {response.status} {_REASONS.get(response.status, 'Unknown')}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (b"" if head else body)
