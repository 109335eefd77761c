"""A generic webhook: the notice as JSON, signed as https://www.standardwebhooks.com describes.

That specification has libraries for a dozen languages, which check the signature and its age, so no part of the
scheme is our own.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from dataclasses import dataclass

from pyrometer_alerting.channel.outlets.http import Endpoint
from pyrometer_alerting.channel.outlets.notice import Notice, Outlet, document

PREFIX = "whsec_"


def key_of(secret: str) -> bytes:
    """Return the key of a secret file: base64 after the specification's prefix, else the text itself.

    Raises:
        ValueError: what follows the prefix is not base64.
    """
    if secret.startswith(PREFIX):
        return base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    return secret.encode()


def sign(key: bytes, delivery: str, timestamp: int, body: bytes) -> str:
    """Return the value of the header `webhook-signature`."""
    signed = f"{delivery}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()


@dataclass(frozen=True, repr=False)
class Webhook(Outlet):
    """Posts every event; the receiver ignores a `webhook-id` that it has already seen."""

    endpoint: Endpoint
    key: bytes
    now: Callable[[], float] = time.time

    def send(self, notice: Notice) -> None:
        """Post the document with its signature."""
        body = json.dumps(document(notice)).encode()
        timestamp = int(self.now())
        headers = {
            "webhook-id": notice.delivery,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": sign(self.key, notice.delivery, timestamp, body),
        }
        self.endpoint.call("POST", body, headers)
