"""A client for Prometheus' HTTP API; any server with that API works."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlencode, urlsplit

from pyrometer_kit.errors import HttpError

DEFAULT_URL = "http://127.0.0.1:9090"
QUERY_SECONDS = 10.0
_FORM = {"Content-Type": "application/x-www-form-urlencoded"}


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
    """POST to ``<url>/api/v1``: a query that names 500 nodes does not fit into a URL. Safe in several threads."""

    def __init__(self, url: str, seconds: float = QUERY_SECONDS, *, whole: bool = False) -> None:
        """Ask the server at ``url``; ``seconds`` is the deadline of a whole answer.

        With ``whole``, an answer that says itself that something of it is missing is an error.
        """
        from pyrometer_kit.http_client import HttpClient  # noqa: PLC0415  only where a question is asked

        self._client = HttpClient(url.rstrip("/"), seconds, repeat=True)
        self._timeout, self._whole = f"{seconds:g}s", whole

    def instant(self, query: str, at: float) -> list[Series]:
        """See :class:`Prometheus`."""
        return self._ask("/api/v1/query", {"query": query, "time": f"{at:.3f}"})

    def range(self, query: str, start: float, end: float, step: float) -> list[Series]:
        """See :class:`Prometheus`."""
        form = {"query": query, "start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step:.3f}"}
        return self._ask("/api/v1/query_range", form)

    def now(self) -> float:
        """Return the server's time, in Unix seconds; raises PrometheusError."""
        for series in self._ask("/api/v1/query", {"query": "vector(time())"}):
            return series.points[-1][1]
        raise PrometheusError("Prometheus does not say what time it is", "bad_answer")

    def close(self) -> None:
        """Close the connections that were kept open."""
        self._client.close()

    def _ask(self, path: str, form: Mapping[str, str]) -> list[Series]:
        body = urlencode({**form, "timeout": self._timeout}).encode()
        try:
            with self._client.ask("POST", path, body, _FORM) as reply:
                content = reply.read()
        except HttpError as error:
            raise PrometheusError(f"Prometheus at {error}", error.reason) from None
        try:
            return answer(content, reply.status, whole=self._whole)
        except PrometheusError as error:
            raise PrometheusError(f"{error}{reply.via}", error.reason) from None


def answer(body: bytes, status: int = 200, *, whole: bool = False) -> list[Series]:
    """Return the series in an answer of the API.

    Raises:
        PrometheusError: Prometheus refused the query, or it is not such an answer; with ``whole`` also if it says that
            it is partial, as VictoriaMetrics (``isPartial``) and Thanos (``warnings``) do.
    """
    try:
        document = json.loads(body)
        if document["status"] != "success":
            raise PrometheusError(f"Prometheus: {document.get('error', 'no reason given')}"[:300], "refused")
        missing = document.get("warnings") or document.get("isPartial")
        if whole and missing:
            raise PrometheusError(f"Prometheus' answer is not complete: {missing}"[:300], "partial")
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
