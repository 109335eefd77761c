"""Get one response of an HTTP API, for checks that people start; :mod:`.prometheus` is for long-running use."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from email.message import Message
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from pyrometer_kit.answer_body import TooLargeError, read_whole
from pyrometer_kit.flags import LOOPBACK
from pyrometer_kit.prometheus import basic_credentials, place

MAX_BYTES = 32 << 20
SECONDS = 10.0


class HttpGetError(Exception):
    """No valid answer; the message is one line without credentials, ``status`` that of HTTP or 0."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """Makes a redirect an error: urllib would forward the credentials to whatever address the answer names."""

    def http_error_302(self, req: urllib.request.Request, fp: object, code: int, msg: str, headers: Message) -> None:
        """Follow none."""

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


def get(url: str, path: str, *, token: str = "", seconds: float = SECONDS) -> bytes:
    """Return the body of ``url`` + ``path``.

    Args:
        url: base address; a user and a password in it are sent as basic authentication.
        path: path and query, from the slash on.
        token: sent as a bearer token where the address has no user.
        seconds: deadline of the connection, of each wait for the server, and of the whole body.

    Raises:
        HttpGetError: it could not be read, with the reason.
    """
    parts = urlsplit(url.rstrip("/"))
    headers = basic_credentials(parts) or ({"Authorization": f"Bearer {token}"} if token else {})
    bare = urlunsplit((parts.scheme, place(parts), parts.path, "", ""))
    request = urllib.request.Request(f"{bare}{path}", headers={"Accept": "application/json, */*", **headers})  # noqa: S310  the caller's flag
    proxies = urllib.request.ProxyHandler({}) if parts.hostname in LOOPBACK else urllib.request.ProxyHandler()
    try:
        with urllib.request.build_opener(proxies, NoRedirects()).open(request, timeout=seconds) as answer:
            return read_whole(answer, MAX_BYTES, time.monotonic() + seconds)
    except urllib.error.HTTPError as error:
        error.close()
        raise HttpGetError(f"{bare}{path} answers {error.code} {error.reason}{_elsewhere(error)}", error.code) from None
    except urllib.error.URLError as error:
        raise HttpGetError(f"{bare}: {error.reason}") from None
    except TooLargeError:
        raise HttpGetError(f"{bare}{path}: the answer is larger than {MAX_BYTES >> 20} MiB") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise HttpGetError(f"{bare}: {str(error) or type(error).__name__}") from None


def _elsewhere(error: urllib.error.HTTPError) -> str:
    """Return the remedy for a redirect, with its host alone: its path may have a ticket."""
    try:
        parts = urlsplit(error.headers.get("Location", ""))
    except ValueError:
        return ""
    if error.code not in (301, 302, 303, 307, 308) or not parts.netloc or not place(parts).isprintable():
        return ""
    return f" (it redirects to {parts.scheme}://{place(parts)[:100]}, which is not followed: give that address)"


def get_json(url: str, path: str, *, token: str = "", seconds: float = SECONDS) -> Any:  # noqa: ANN401  any document
    """Return the JSON document at ``url`` + ``path``.

    Raises:
        HttpGetError: it could not be read, or is not JSON, such as a login page in front of the service.
    """
    body = get(url, path, token=token, seconds=seconds)
    try:
        return json.loads(body)
    except ValueError:
        start = body[:20].decode("utf-8", "replace").strip()
        login = " (a login page in front of it?)" if start.startswith("<") else ""
        raise HttpGetError(f"{place(urlsplit(url))}{path}: not JSON{login}") from None
