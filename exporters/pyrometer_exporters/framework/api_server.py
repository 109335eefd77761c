"""The API server of Kubernetes, as a pod reaches it, with the standard library alone: for programs of nodes."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from pyrometer_kit.errors import UsageError

ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
ANSWER_SECONDS: Final = 5.0
MOST_BYTES: Final = 16 << 20
"""The pods of a node are some hundred, a node's own object has some 20 kB."""
_MOST_CHARACTERS: Final = 300


class ApiServer:
    """Asks the API server with the token of the service account."""

    def __init__(self, address: tuple[str, int], account: Path = ACCOUNT) -> None:
        self._address, self._account = address, account

    def ask(
        self, method: str, path: str, headers: Mapping[str, str] = MappingProxyType({}), body: bytes | None = None
    ) -> bytes:
        """Return the body of an answer of success.

        Raises:
            OSError: Nobody answered.
            ValueError: The answer is not HTTP, or its status is not of success.
        """
        import http.client  # noqa: PLC0415  4 MB that only nodes of Kubernetes need
        import ssl  # noqa: PLC0415

        token = (self._account / "token").read_text(encoding="ascii").strip()  # renewed every hour
        context = ssl.create_default_context(cafile=str(self._account / "ca.crt"))
        connection = http.client.HTTPSConnection(*self._address, timeout=ANSWER_SECONDS, context=context)
        try:
            connection.request(method, path, body, {"Authorization": f"Bearer {token}", **headers})
            with connection.getresponse() as answer:
                status, text = answer.status, answer.read(MOST_BYTES)
        except http.client.HTTPException as error:
            raise ValueError(f"the answer is not HTTP: {type(error).__name__}") from None
        finally:
            connection.close()
        if not 200 <= status < 300:
            raise ValueError(f"HTTP status {status}{_message(text)}")
        return text


def _message(text: bytes) -> str:
    """Return why the server refused, in its own words; empty where it gave no reason."""
    try:
        message = json.loads(text)["message"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return f": {''.join(c if c.isprintable() else ' ' for c in str(message))[:_MOST_CHARACTERS]}"


def from_environment(flag: str, account: Path = ACCOUNT, environment: Mapping[str, str] = os.environ) -> ApiServer:
    """Return the API server that the environment of a pod names.

    Args:
        flag: the flag that needs the server, for the error.
        account: folder of the token and of the certificate of the server's authority.
        environment: the environment of the pod.

    Raises:
        UsageError: This is no pod.
    """
    host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port.isdecimal():
        raise UsageError(f"{flag}: not running in a pod: KUBERNETES_SERVICE_HOST and _PORT are not set")
    return ApiServer((host, int(port)), account)
