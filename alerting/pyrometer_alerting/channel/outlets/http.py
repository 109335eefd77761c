"""One HTTP call of an outlet, and the meaning of its failures."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import requests
from urllib3.exceptions import HTTPError

from pyrometer_alerting.channel.failure import DeliveryFailure, Trouble
from pyrometer_alerting.channel.slack import LONGEST_WAIT_SECONDS, TIMEOUT_SECONDS
from pyrometer_alerting.model.text import plain
from pyrometer_kit.answer_body import TooLargeError, read_whole
from pyrometer_kit.flags import LOOPBACK

_log = logging.getLogger(__name__)

RATE_SECONDS = 30.0  # without a Retry-After; PagerDuty and Opsgenie count by the minute
# The address or the key is wrong or was revoked: the content is not at fault.
_REFUSED = (301, 302, 303, 307, 308, 401, 402, 403, 404, 405, 410)
_REPLY_SHOWN = 160
_HEADERS = {"Content-Type": "application/json", "User-Agent": "pyrometer-alerting", "Accept-Encoding": "identity"}
_REPLY_BYTES = 64 << 10  # of a refusal's reason


@dataclass(frozen=True)
class Endpoint:
    """An address, with a private certificate authority and the secrets that must not appear in logs."""

    url: str
    ca_file: str = ""
    secrets: tuple[str, ...] = ()

    def call(self, method: str, body: bytes, headers: Mapping[str, str], path: str = "") -> None:
        """Send JSON and return once it is accepted; redirects are not followed, so the secret goes nowhere else.

        Raises:
            DeliveryFailure: it is not known to be accepted.
        """
        try:
            with requests.Session() as session:
                # A proxy from the environment cannot reach our loopback.
                session.trust_env = urlsplit(self.url).hostname not in LOOPBACK
                request = session.request(
                    method,
                    self.url + path,
                    data=body,
                    headers={**_HEADERS, **headers},
                    timeout=TIMEOUT_SECONDS,
                    allow_redirects=False,
                    verify=self.ca_file or None,
                    stream=True,
                )
                with request as answer:
                    said = "" if answer.ok else _reason(answer)
        except requests.exceptions.SSLError:
            raise DeliveryFailure(Trouble.AUTH, "tls") from None  # its text has the address, which may be a secret
        except requests.exceptions.ConnectTimeout:
            raise DeliveryFailure(Trouble.SAFE, "unreachable") from None
        except (requests.RequestException, OSError, ValueError) as error:
            raise DeliveryFailure(Trouble.AMBIGUOUS, type(error).__name__) from None
        if not 200 <= answer.status_code < 300:
            _log.warning("outlet answers %d: %s", answer.status_code, self._shown(said))
            raise _failure(answer, said)

    def _shown(self, text: str) -> str:
        for secret in self.secrets:
            text = text.replace(secret, "[secret]")
        return plain(text, _REPLY_SHOWN)


def _reason(answer: requests.Response) -> str:
    """Return the response's reason if it is short and arrives in time; the status is known and is enough without it."""
    try:
        body = read_whole(answer.raw, _REPLY_BYTES, time.monotonic() + TIMEOUT_SECONDS)
    except (HTTPError, OSError, TooLargeError):
        return ""
    return body.decode("utf-8", "replace")


def _failure(answer: requests.Response, said: str) -> DeliveryFailure:
    status = answer.status_code
    code = f"http_{status}"
    if status == 429:
        return DeliveryFailure(Trouble.RATE, "ratelimited", _retry_after(answer.headers.get("Retry-After", "")))
    # PagerDuty answers 400 to a key that it does not know, and says so.
    if status in _REFUSED or (status == 400 and "routing" in said[:2000].lower()):
        return DeliveryFailure(Trouble.AUTH, code)
    if status == 408 or status >= 500:
        return DeliveryFailure(Trouble.AMBIGUOUS, code)
    return DeliveryFailure(Trouble.PAYLOAD, code)


def _retry_after(value: str) -> float:
    try:
        return min(max(float(value), 1.0), LONGEST_WAIT_SECONDS)
    except ValueError:
        return RATE_SECONDS
