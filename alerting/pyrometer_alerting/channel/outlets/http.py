"""One HTTP call of an outlet, and the meaning of its failures."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass

from pyrometer_alerting.channel.breaker import DeliveryFailure, Trouble
from pyrometer_alerting.channel.slack import LONGEST_WAIT_SECONDS, TIMEOUT_SECONDS
from pyrometer_alerting.model.text import plain
from pyrometer_kit.errors import HttpError
from pyrometer_kit.http_client import Answer, HttpClient

_log = logging.getLogger(__name__)

RATE_SECONDS = 30.0  # without a Retry-After; PagerDuty and Opsgenie count by the minute
# The address or the key is wrong or was revoked: the content is not at fault.
_REFUSED = (301, 302, 303, 307, 308, 401, 402, 403, 404, 405, 410)
# Content that is malformed, too large, of a wrong kind or unprocessable (RFC 9110). No other status is final.
_NEVER = (400, 413, 415, 422)
_REPLY_SHOWN = 160
_HEADERS = {"Content-Type": "application/json", "User-Agent": "pyrometer-alerting"}


@dataclass(frozen=True)
class Endpoint:
    """An address, with a private certificate authority and the secrets that must not appear in logs."""

    url: str
    ca_file: str = ""
    secrets: tuple[str, ...] = ()

    def call(self, method: str, body: bytes, headers: Mapping[str, str], path: str = "") -> None:
        """Send JSON and return once it is accepted.

        Raises:
            DeliveryFailure: it is not known to be accepted.
        """
        try:
            client = HttpClient(self.url, TIMEOUT_SECONDS, ca_file=self.ca_file)
            with closing(client), client.ask(method, path, body, {**_HEADERS, **headers}) as answer:
                if 200 <= answer.status < 300:
                    return
                said = _reason(answer)
        except HttpError as error:
            if error.reason == "tls":
                raise DeliveryFailure(Trouble.AUTH, "tls") from None
            if not error.sent:
                raise DeliveryFailure(Trouble.SAFE, "unreachable") from None
            raise DeliveryFailure(Trouble.AMBIGUOUS, error.reason) from None
        _log.warning("outlet answers %d: %s", answer.status, self._shown(said))
        raise _failure(answer, said)

    def _shown(self, text: str) -> str:
        for secret in self.secrets:
            text = text.replace(secret, "[secret]")
        return plain(text, _REPLY_SHOWN)


def _reason(answer: Answer) -> str:
    """Return the response's reason if it is short and arrives in time; the status is known and is enough without it."""
    try:
        return answer.read().decode("utf-8", "replace")
    except HttpError:
        return ""


def _failure(answer: Answer, said: str) -> DeliveryFailure:
    status = answer.status
    code = f"http_{status}"
    if status == 429:
        return DeliveryFailure(Trouble.RATE, "ratelimited", _retry_after(answer.headers.get("Retry-After", "")))
    # PagerDuty answers 400 to a key that it does not know, and says so.
    if status in _REFUSED or (status == 400 and "routing" in said[:2000].lower()):
        return DeliveryFailure(Trouble.AUTH, code)
    if status == 408 or status >= 500:
        return DeliveryFailure(Trouble.AMBIGUOUS, code)
    return DeliveryFailure(Trouble.PAYLOAD if status in _NEVER else Trouble.UNKNOWN, code)


def _retry_after(value: str) -> float:
    try:
        return min(max(float(value), 1.0), LONGEST_WAIT_SECONDS)
    except ValueError:
        return RATE_SECONDS
