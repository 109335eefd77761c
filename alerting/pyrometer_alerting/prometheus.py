"""Questions to one configured Prometheus: instant and range queries, with a deadline for the whole answer."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

import requests

# A healthy Prometheus answers these in 5-50 ms; one that needs longer is in trouble, and the message does not wait.
QUERY_SECONDS = 3.0
DIGEST_SECONDS = 30.0  # a digest asks for months, and nobody waits for it
MAX_ANSWER_BYTES = 32 << 20


class PrometheusError(Exception):
    """No answer, or not a good one; one line that may be shown."""


@dataclass(frozen=True)
class Series:
    """Labels and (Unix seconds, value) points; an instant vector has one point."""

    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]


class Prometheus(Protocol):
    """What the diagnosis asks. All raise PrometheusError."""

    def instant(self, query: str, at: float) -> list[Series]:
        """The vector at that time."""

    def range(self, query: str, start: float, end: float, step: float) -> list[Series]:
        """The matrix between start and end."""

    def samples(self, query: str, at: float) -> list[Series]:
        """The stored samples of a range selector such as `name[5m]` that ends at that time, with their own times."""


class HttpPrometheus:
    """Prometheus' HTTP API by POST: a query that names 500 nodes does not fit into a URL."""

    def __init__(self, url: str, seconds: float = QUERY_SECONDS) -> None:
        self._url, self._seconds = url.rstrip("/"), seconds
        self._session = requests.Session()
        if urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1"):
            self._session.trust_env = False  # a proxy of the environment cannot reach our loopback

    def instant(self, query: str, at: float) -> list[Series]:
        """POST /api/v1/query."""
        result = self._ask("/api/v1/query", {"query": query, "time": f"{at:.3f}"})
        return [Series(item["metric"], (_point(item["value"]),)) for item in result]

    def range(self, query: str, start: float, end: float, step: float) -> list[Series]:
        """POST /api/v1/query_range."""
        form = {"query": query, "start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step:.3f}"}
        result = self._ask("/api/v1/query_range", form)
        return [Series(item["metric"], tuple(map(_point, item["values"]))) for item in result]

    def samples(self, query: str, at: float) -> list[Series]:
        """POST /api/v1/query with a range selector: a matrix of what is stored, as it is."""
        result = self._ask("/api/v1/query", {"query": query, "time": f"{at:.3f}"})
        return [Series(item["metric"], tuple(map(_point, item["values"]))) for item in result]

    def close(self) -> None:
        """Close kept connections."""
        self._session.close()

    def _ask(self, path: str, form: Mapping[str, str]) -> list[Any]:
        try:
            document = json.loads(self._body(path, form))
            if document.get("status") != "success":
                raise PrometheusError(f"Prometheus refused a query: {document.get('errorType', 'no reason')}")
            return list(document["data"]["result"])
        except requests.RequestException as error:
            raise PrometheusError(f"Prometheus did not answer ({type(error).__name__})") from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise PrometheusError("Prometheus' answer could not be read") from None

    def _body(self, path: str, form: Mapping[str, str]) -> bytes:
        """The whole answer, bounded in time and size (requests' own timeout is per read)."""
        deadline = time.monotonic() + self._seconds
        form = {**form, "timeout": f"{self._seconds:g}s"}
        with self._session.post(self._url + path, data=form, timeout=self._seconds, stream=True) as answer:
            body = bytearray()
            for chunk in answer.iter_content(1 << 16):
                body += chunk
                if time.monotonic() > deadline:
                    raise PrometheusError(f"Prometheus did not answer within {self._seconds:g} s")
                if len(body) > MAX_ANSWER_BYTES:
                    raise PrometheusError("Prometheus' answer is too large")
            return bytes(body)


def quoted(value: str) -> str:
    """A PromQL string literal: backslash, quote and newline escaped."""
    return json.dumps(value, ensure_ascii=False)


def matching(label: str, values: Iterable[str]) -> str:
    """A matcher for any of the values, each taken literally: RE2's special characters are escaped."""
    literal = "|".join(
        "".join(f"\\{char}" if char in r"\.+*?()|[]{}^$" else char for char in value) for value in values
    )
    return f"{label}=~{quoted(literal)}"


def _point(raw: Any) -> tuple[float, float]:  # noqa: ANN401 - JSON
    return float(raw[0]), float(raw[1])
