"""The HTTP client of everything that asks another service: requests, with the same limits for all.

An answer has a deadline as a whole and a limit in bytes, and is never unpacked; no redirect is followed, since it would
take the credentials along; proxies come from the environment, except for loopback addresses, and nothing from a .netrc;
certificates are checked against SSL_CERT_FILE, REQUESTS_CA_BUNDLE or the system's authorities, or a file of the
caller's. To be imported where a question is asked: a program that asks nobody saves 10 MB.
"""

from __future__ import annotations

import errno
import http.client
import io
import json
import os
import socket
import ssl
import time
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import closing
from http.cookiejar import DefaultCookiePolicy
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

import requests
from requests.adapters import HTTPAdapter
from requests.utils import get_environ_proxies, select_proxy
from urllib3 import Timeout
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError, NewConnectionError

from pyrometer_kit.errors import HttpError
from pyrometer_kit.flags import LOOPBACK, place

if TYPE_CHECKING:
    from typing_extensions import Self

SECONDS = 10.0
MAX_BYTES = 64 << 20  # tens of thousands of alerts with annotations; 24,000 ports of UFM are 20 MB
_PIECE = 1 << 16
_REDIRECTS = (301, 302, 303, 307, 308)
_BUNDLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
# The reasons of a kept connection that the server has closed in the meantime.
_CLOSED = ("remotedisconnected", "epipe", "econnreset")


class HttpClient:
    """Asks one service, over connections that it keeps open. Safe in several threads."""

    def __init__(
        self, url: str, seconds: float = SECONDS, *, ca_file: str = "", use_proxies: bool = True, repeat: bool = False
    ) -> None:
        """Ask the service at ``url``, whose user and password are sent as basic authentication.

        Args:
            url: base address.
            seconds: deadline of an answer, from the connection to the last byte.
            ca_file: the only certificate authorities to trust.
            use_proxies: let the environment name a proxy.
            repeat: send a request, which changes nothing, once more if the server had closed the kept connection.
        """
        parts = urlsplit(url)
        self._base = urlunsplit((parts.scheme, place(parts), parts.path, parts.query, ""))
        self._seconds, self._repeat = seconds, repeat
        self._use_proxies = use_proxies and parts.hostname not in LOOPBACK
        self._session = _Session()
        self._session.trust_env = False  # a .netrc would replace our credentials
        self._session.verify = ca_file or _authorities()
        self._session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=()))
        self._session.headers.update({"Accept-Encoding": "identity", "User-Agent": "pyrometer", **_credentials(parts)})
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, _Adapter())

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Send a request and return the answer, for a ``with`` statement, as soon as its header is there.

        Raises:
            HttpError: There was none.
        """
        address = f"{self._base.rstrip('/') if path.startswith('/') else self._base}{path}"
        try:
            return self._send(method, address, body, headers)
        except HttpError as error:
            if not (self._repeat and error.reason in _CLOSED):
                raise
            return self._send(method, address, body, headers)

    def _send(self, method: str, url: str, body: bytes | None, headers: Mapping[str, str] | None) -> Answer:
        proxies = get_environ_proxies(url) if self._use_proxies else {}
        via = _via(proxies, url)
        timeout: Any = Timeout(total=self._seconds)  # requests takes it, though its types don't say so
        try:
            response = self._session.request(
                method, url, data=body, headers=headers, proxies=proxies, timeout=timeout, stream=True
            )
        except (requests.RequestException, HTTPError, OSError, ValueError) as error:
            raise _failure(error, url, via) from None
        return Answer(response, url, via)

    def close(self) -> None:
        """Close the connections that were kept open."""
        self._session.close()


class Answer:
    """An answer, whatever its status, whose body may still be on its way."""

    def __init__(self, response: requests.Response, url: str, via: str = "") -> None:
        self._response, self.url = response, url
        self.via = via
        """The proxy that was asked, and how to leave it out, as words that end a message; empty without one."""
        self.status, self.phrase = response.status_code, http.client.responses.get(response.status_code, "")
        self.headers: Mapping[str, str] = response.headers

    def read(self) -> bytes:
        """Return the body.

        Raises:
            HttpError: Not all of it came in time, or it is too large.
        """
        body = bytearray()
        try:
            for piece in self._response.raw.stream(_PIECE, decode_content=False):
                body += piece
                if len(body) > MAX_BYTES:
                    raise HttpError(f"{_origin(self.url)}: more than {MAX_BYTES >> 20} MiB", "too_large")
        except HttpError:
            raise
        except (HTTPError, OSError) as error:
            raise _failure(error, self.url, self.via) from None
        return bytes(body)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._response.close()


def get(url: str, path: str = "", *, token: str = "", seconds: float = SECONDS) -> bytes:
    """Return the body of ``url`` + ``path``; the token is sent where the address has no user.

    Raises:
        HttpError: It could not be read, or the status is not of success.
    """
    headers = {"Accept": "application/json, */*"}
    if token and urlsplit(url).username is None:
        headers["Authorization"] = f"Bearer {token}"
    with closing(HttpClient(url, seconds)) as client, client.ask("GET", path, headers=headers) as answer:
        if answer.status >= 300:
            remedy = _elsewhere(answer.headers.get("Location", "")) if answer.status in _REDIRECTS else ""
            message = f"{answer.url} answers {answer.status} {answer.phrase}".rstrip() + answer.via + remedy
            raise HttpError(message, f"http_{answer.status}", status=answer.status)
        return answer.read()


def get_json(url: str, path: str = "", *, token: str = "", seconds: float = SECONDS) -> Any:  # noqa: ANN401  any document
    """Return the JSON document at ``url`` + ``path``.

    Raises:
        HttpError: It could not be read, or is not JSON, such as a login page in front of the service.
    """
    body = get(url, path, token=token, seconds=seconds)
    try:
        return json.loads(body)
    except ValueError:
        login = " (a login page in front of it?)" if body.lstrip().startswith(b"<") else ""
        raise HttpError(f"{place(urlsplit(url))}{path}: not JSON{login}", "bad_answer") from None


def _elsewhere(location: str) -> str:
    """Return the remedy for a redirect, with its host alone: its path may have a ticket."""
    try:
        parts = urlsplit(location)
    except ValueError:
        return ""
    if not parts.netloc or not place(parts).isprintable():
        return ""
    return f" (it redirects to {parts.scheme}://{place(parts)[:100]}, which is not followed: give that address)"


def _credentials(url: SplitResult) -> dict[str, str]:
    """Return the header of basic authentication for an address with a user; empty without one."""
    if url.username is None:
        return {}
    pair = f"{unquote(url.username)}:{unquote(url.password or '')}"
    return {"Authorization": f"Basic {b64encode(pair.encode()).decode()}"}


def _authorities() -> str | bool:
    """Return the file or folder of trusted certificates; True for requests' own where the system has none."""
    paths = ssl.get_default_verify_paths()
    folder = paths.capath if paths.capath and any(Path(paths.capath).iterdir()) else None
    return next(filter(None, (*map(os.environ.get, _BUNDLES), paths.cafile, folder)), True)


def _via(proxies: Mapping[str, str], url: str) -> str:
    """Return the proxy of the environment that is asked for this address, and what leaves it out."""
    proxy = select_proxy(url, proxies)
    if not proxy:
        return ""
    parts = urlsplit(url)
    where = urlsplit(proxy if "://" in proxy else f"//{proxy}")
    return f" through the proxy {place(where)} ({parts.scheme.upper()}_PROXY; NO_PROXY={parts.hostname} leaves it out)"


def _failure(error: Exception, url: str, via: str = "") -> HttpError:
    """Translate an error of requests or urllib3 by its cause: their own texts have the whole address."""
    causes = list(_causes(error))
    cause = causes[-1]
    unsent = (requests.ConnectTimeout, ssl.SSLError, NewConnectionError, ValueError)
    sent = not any(isinstance(error, unsent) for error in causes)
    if isinstance(cause, TimeoutError):
        return HttpError(f"{_origin(url)}: no answer in time{via}", "deadline", sent=sent)
    return HttpError(f"{_origin(url)}: {str(cause) or type(cause).__name__}{via}", _reason(cause), sent=sent)


def _origin(url: str) -> str:
    return "://".join(urlsplit(url)[:2])


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and what caused it, down to the system's or the protocol's own."""
    while error is not None:
        yield error
        if isinstance(error, (OSError, http.client.HTTPException)) and not isinstance(error, requests.RequestException):
            return
        error = error.__cause__ or error.__context__


def _reason(cause: BaseException) -> str:
    for kind, reason in ((socket.gaierror, "eai"), (ssl.SSLError, "tls")):  # whose numbers are not errno's
        if isinstance(cause, kind):
            return reason
    number = getattr(cause, "errno", None)
    return errno.errorcode.get(number, "").lower() if number else type(cause).__name__.lower()


class _Reader(io.RawIOBase):
    """A socket's bytes up to a deadline for all reads together: its own timeout starts again with each read."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket) -> None:
        self._raw, self._sock, self._until = raw, sock, time.monotonic() + (sock.gettimeout() or 0.0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:  # noqa: ANN401  the base class's
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError("the answer came too slowly")
        self._sock.settimeout(left)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(http.client.HTTPResponse):
    """An answer, also a proxy's to CONNECT, whose header and body share the time that is left."""

    def __init__(self, sock: socket.socket, *arguments: Any, **settings: Any) -> None:  # noqa: ANN401  http.client's
        super().__init__(sock, *arguments, **settings)
        self.fp = io.BufferedReader(_Reader(self.fp.detach(), sock))


class _Connection(HTTPConnection):
    response_class = _Response


class _TlsConnection(HTTPSConnection):
    response_class = _Response


class _Adapter(HTTPAdapter):
    def get_connection_with_tls_context(self, *arguments: Any, **settings: Any) -> Any:  # noqa: ANN401  HTTPAdapter's
        pool: Any = super().get_connection_with_tls_context(*arguments, **settings)
        pool.ConnectionCls = _TlsConnection if pool.scheme == "https" else _Connection
        return pool


class _Session(requests.Session):
    """Follows no redirect, and does not even read where one leads to, which may be no address at all."""

    def get_redirect_target(self, resp: requests.Response) -> None:  # noqa: ARG002  Session's
        return None
