"""A client for Prometheus' HTTP API, on the standard library; any server with that API works."""

from __future__ import annotations

import argparse
import errno
import http.client
import json
import math
import os
import socket
import ssl
import time
import weakref
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import SplitResult, unquote, urlencode, urlsplit

from pyrometer_kit.answer_body import TooLargeError, read_whole
from pyrometer_kit.flags import LOOPBACK

DEFAULT_URL = "http://127.0.0.1:9090"
QUERY_SECONDS = 10.0
MAX_ANSWER_BYTES = 32 << 20
# A kept connection that the server has closed in the meantime.
_STALE = (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError)
# The numbers of name-resolution and TLS errors are not errno's.
_NUMBERS = {socket.gaierror: "eai", ssl.SSLError: "tls"}


class PrometheusError(Exception):
    """No valid answer; the message is one line that may be shown.

    ``reason`` is one word for a label: ``deadline``, ``refused``, ``bad_answer``, ``too_large``, ``http_401``, or the
    name of an errno such as ``econnrefused``.
    """

    def __init__(self, message: str, reason: str = "failed") -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True)
class Series:
    """Labels, and (Unix seconds, value) points in order of time."""

    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]


class Prometheus(Protocol):
    """The queries; both raise PrometheusError."""

    def instant(self, query: str, at: float) -> list[Series]:
        """Return a query's result at a time (Unix seconds).

        A vector has one point per series; a range selector such as ``name[5m]`` has the stored samples of the range
        that ends at that time, with their own times.
        """
        ...

    def range(self, query: str, start: float, end: float, step: float) -> list[Series]:
        """Return a query's results from ``start`` to ``end`` (Unix seconds), every ``step`` seconds."""
        ...


class HttpPrometheus:
    """POST to ``<url>/api/v1``: a query that names 500 nodes does not fit into a URL. Safe in several threads.

    The URL may have a user and a password; proxies come from the environment, except for loopback addresses.
    """

    def __init__(self, url: str, seconds: float = QUERY_SECONDS) -> None:
        """Ask the server at ``url``; ``seconds`` is the deadline of a whole answer."""
        self._url = urlsplit(url.rstrip("/"))
        self._seconds = seconds
        self._idle: list[http.client.HTTPConnection] = []
        weakref.finalize(self, _close, self._idle)
        self._headers = {"Content-Type": "application/x-www-form-urlencoded", **basic_credentials(self._url)}

    def instant(self, query: str, at: float) -> list[Series]:
        """See :class:`Prometheus`."""
        return self._ask("/api/v1/query", {"query": query, "time": f"{at:.3f}"})

    def range(self, query: str, start: float, end: float, step: float) -> list[Series]:
        """See :class:`Prometheus`."""
        form = {"query": query, "start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step:.3f}"}
        return self._ask("/api/v1/query_range", form)

    def close(self) -> None:
        """Close the connections that were kept open."""
        _close(self._idle)

    def _ask(self, path: str, form: Mapping[str, str]) -> list[Series]:
        form = {**form, "timeout": f"{self._seconds:g}s"}
        try:
            return answer(*self._post(path, urlencode(form)))
        except TimeoutError:
            raise PrometheusError(f"Prometheus did not answer within {self._seconds:g} s", "deadline") from None
        except TooLargeError:
            most = f"{MAX_ANSWER_BYTES >> 20} MiB"
            raise PrometheusError(f"Prometheus' answer is larger than {most}", "too_large") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise PrometheusError(f"Prometheus at {place(self._url)}: {error}", _reason(error)) from None

    def _post(self, path: str, form: str) -> tuple[bytes, int]:
        """Return the body and the status of the answer, over a kept connection if one is still usable."""
        until = time.monotonic() + self._seconds
        while self._idle:
            try:
                return self._exchange(self._idle.pop(), path, form, until)
            except (*_STALE, IndexError):  # IndexError: another thread took the last one
                continue
        return self._exchange(self._connection(), path, form, until)

    def _exchange(
        self, connection: http.client.HTTPConnection, path: str, form: str, until: float
    ) -> tuple[bytes, int]:
        try:
            if connection.sock is not None:
                connection.sock.settimeout(max(0.001, until - time.monotonic()))
            connection.request("POST", self._target(connection, path), form, self._headers)
            with connection.getresponse() as response:
                body = read_whole(response, MAX_ANSWER_BYTES, until)
                reusable = not response.will_close
        except BaseException:
            connection.close()
            raise
        if reusable:
            self._idle.append(connection)
        else:
            connection.close()
        return body, response.status

    def _target(self, connection: http.client.HTTPConnection, path: str) -> str:
        plain_proxy = self._url.scheme == "http" and connection.host != self._url.hostname
        return f"http://{place(self._url)}{self._url.path}{path}" if plain_proxy else self._url.path + path

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._url.hostname or "", self._url.port
        proxy = _proxy(self._url)
        if proxy is not None:
            host, port = proxy.hostname or "", proxy.port
        if self._url.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=self._seconds)
        context = ssl.create_default_context()
        connection = http.client.HTTPSConnection(host, port, timeout=self._seconds, context=context)
        if proxy is not None:
            connection.set_tunnel(self._url.hostname or "", self._url.port)
        return connection


def answer(body: bytes, status: int = 200) -> list[Series]:
    """Return the series in an answer of the API.

    Raises:
        PrometheusError: Prometheus refused the query, or it is not such an answer.
    """
    try:
        document = json.loads(body)
        if document["status"] != "success":
            raise PrometheusError(f"Prometheus: {document.get('error', 'no reason given')}"[:300], "refused")
        return [_series(item) for item in document["data"]["result"]]
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        if status >= 400:  # of a proxy, or without the right password
            raise PrometheusError(f"Prometheus answered with status {status}", f"http_{status}") from None
        kind = type(error).__name__
        raise PrometheusError(f"Prometheus' answer can't be read: {kind}", "bad_answer") from None


def prometheus_url(text: str) -> str:
    """Parse a flag: an http or https URL without a password, which every user of the machine could read.

    Raises:
        argparse.ArgumentTypeError: It is not one.
    """
    msg = f"{text!r} is not a URL such as {DEFAULT_URL}"
    try:
        url = urlsplit(text)
        wrong = url.scheme not in ("http", "https") or not url.hostname or (url.port or 1) < 1
    except ValueError:
        raise argparse.ArgumentTypeError(msg) from None
    if wrong:
        raise argparse.ArgumentTypeError(msg)
    if url.username or url.password:
        msg = "the URL has a password in it, which everyone on this machine could read: give one without"
        raise argparse.ArgumentTypeError(msg)
    return text


def _series(item: Mapping[str, Any]) -> Series:
    points = tuple((float(at), float(value)) for at, value in (item["values"] if "values" in item else [item["value"]]))
    labels = item["metric"]
    if not all(isinstance(value, str) for value in labels.values()) or not all(math.isfinite(at) for at, _ in points):
        msg = "a label is not text, or a time is not a number"
        raise ValueError(msg)
    return Series(labels, points)


def _close(connections: list[http.client.HTTPConnection]) -> None:
    while connections:
        connections.pop().close()


def basic_credentials(url: SplitResult) -> dict[str, str]:
    """Return the header of basic authentication for an address with a user; empty without one."""
    if url.username is None:
        return {}
    pair = f"{unquote(url.username)}:{unquote(url.password or '')}"
    return {"Authorization": f"Basic {b64encode(pair.encode()).decode()}"}


def place(url: SplitResult) -> str:
    """Return host and port, without a password."""
    return url.netloc.rpartition("@")[2]


def _proxy(url: SplitResult) -> SplitResult | None:
    if url.hostname in LOOPBACK or not any(name.lower().endswith("_proxy") for name in os.environ):
        return None
    from urllib.request import getproxies, proxy_bypass  # noqa: PLC0415  only where the environment names a proxy

    proxy = getproxies().get(url.scheme)
    return urlsplit(proxy) if proxy and not proxy_bypass(place(url)) else None


def _reason(error: Exception) -> str:
    for kind, reason in _NUMBERS.items():
        if isinstance(error, kind):
            return reason
    number = getattr(error, "errno", None)
    return errno.errorcode.get(number, "").lower() if number else type(error).__name__.lower()
