"""Questions to the cluster's Prometheus, by its HTTP API and the standard library."""

from __future__ import annotations

import argparse
import http.client
import json
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlencode, urlsplit

from pyrometer_exporters.framework.outcome import LATE, PartError, reason_of

DEFAULT_URL = "http://127.0.0.1:9090"
# Ten minutes of a run's batches at 4 steps/s are 200 kB and took 10 ms; a Prometheus that is compacting takes longer.
QUERY_SECONDS = 10.0
MAX_ANSWER_BYTES = 32 << 20
_CHUNK = 1 << 16


@dataclass(frozen=True)
class Series:
    """Labels, and (Unix seconds, value) points in order of time."""

    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]


class Prometheus(Protocol):
    """What is asked. Both raise PartError."""

    def instant(self, query: str, at: float) -> list[Series]:
        """A query at a time: a vector has one point each, ``metric[5m]`` the stored samples with their own times."""

    def range(self, query: str, start: float, end: float, step: float) -> list[Series]:
        """A query evaluated every ``step`` seconds."""


class HttpPrometheus:
    """POST to ``<url>/api/v1``; every call is a connection of its own, since minutes may lie between two."""

    def __init__(self, url: str, seconds: float = QUERY_SECONDS) -> None:
        self._url = urlsplit(url.rstrip("/"))
        self._seconds = seconds

    def instant(self, query: str, at: float) -> list[Series]:
        """See :class:`Prometheus`."""
        return self._ask("/api/v1/query", {"query": query, "time": f"{at:.3f}"})

    def range(self, query: str, start: float, end: float, step: float) -> list[Series]:
        """See :class:`Prometheus`."""
        form = {"query": query, "start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step:.3f}"}
        return self._ask("/api/v1/query_range", form)

    def _ask(self, path: str, form: Mapping[str, str]) -> list[Series]:
        form = {**form, "timeout": f"{self._seconds:g}s"}
        try:
            return answer(self._body(path, urlencode(form)))
        except TimeoutError:
            raise PartError(LATE, f"Prometheus did not answer within {self._seconds:g} s") from None
        except (OSError, http.client.HTTPException) as error:
            raise PartError(reason_of(error), f"Prometheus at {self._url.netloc}: {error}") from None

    def _body(self, path: str, form: str) -> bytes:
        until = time.monotonic() + self._seconds
        host, port = self._url.hostname or "", self._url.port
        if self._url.scheme == "https":
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                host, port, timeout=self._seconds, context=ssl.create_default_context()
            )
        else:
            connection = http.client.HTTPConnection(host, port, timeout=self._seconds)
        try:
            headers = {"Content-Type": "application/x-www-form-urlencoded"}
            connection.request("POST", self._url.path + path, form, headers)
            with connection.getresponse() as response:
                return _bounded(response, until)
        finally:
            connection.close()


def _bounded(response: http.client.HTTPResponse, until: float) -> bytes:
    """The whole answer; the connection's own timeout is per read, and an answer could trickle in for ever."""
    body = bytearray()
    while data := response.read1(_CHUNK):
        body += data
        if time.monotonic() > until:
            raise TimeoutError
        if len(body) > MAX_ANSWER_BYTES:
            raise PartError("too_large", f"Prometheus' answer is larger than {MAX_ANSWER_BYTES >> 20} MiB")
    return bytes(body)


def answer(body: bytes) -> list[Series]:
    """The series in an answer of the API. Raises PartError where Prometheus refused, or it isn't one."""
    try:
        document = json.loads(body)
        if document["status"] != "success":
            raise PartError("refused", f"Prometheus: {document.get('error', 'no reason given')}"[:300])
        return [_series(item) for item in document["data"]["result"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise PartError("bad_answer", f"Prometheus' answer can't be read: {type(error).__name__}") from None


def _series(item: Mapping[str, Any]) -> Series:
    points = item["values"] if "values" in item else [item["value"]]
    return Series(item["metric"], tuple((float(at), float(value)) for at, value in points))


def prometheus_url(text: str) -> str:
    """Parse a flag: an http or https URL without a password, which every user of the machine could read."""
    try:
        found = urlsplit(text)
        wrong = found.scheme not in ("http", "https") or not found.hostname or (found.port or 1) < 1
    except ValueError:
        wrong = True
    if wrong:
        msg = f"{text!r} is not a URL such as {DEFAULT_URL}"
        raise argparse.ArgumentTypeError(msg)
    if found.username or found.password:
        msg = "the URL has a password in it, which everyone on this machine could read: give one without"
        raise argparse.ArgumentTypeError(msg)
    return text
