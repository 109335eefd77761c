"""One HTTP call of a test, a benchmark or the demo; `pyrometer_kit.http_client.get` is for what must succeed."""

from __future__ import annotations

from contextlib import closing
from typing import NamedTuple

from pyrometer_kit.http_client import HttpClient


class Reply(NamedTuple):
    """A whole answer."""

    status: int
    body: bytes


def call(url: str, body: bytes | None = None, *, method: str = "", seconds: float = 20.0, **headers: str) -> Reply:
    """Return the answer, whatever its status. A body makes it a POST, of a form unless ``Content_Type`` says otherwise.

    Raises:
        HttpError: There was none.
    """
    sent = {} if body is None else {"Content-Type": "application/x-www-form-urlencoded"}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    client = HttpClient(url, seconds)
    with closing(client), client.ask(method or ("GET" if body is None else "POST"), "", body, sent) as answer:
        return Reply(answer.status, answer.read())
