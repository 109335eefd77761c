"""Parse Alertmanager's webhook body (version 4) into alerts; unknown fields are ignored, since versions add some.

An alert in it looks like this:

    {"status": "firing", "labels": {"alertname": "GpuLost", "node": "gpu-042"}, "annotations": {"summary": "..."},
     "startsAt": "2026-11-21T03:12:05.123456789Z", "endsAt": "0001-01-01T00:00:00Z", "generatorURL": "...",
     "fingerprint": "1a2b3c4d5e6f7081"}
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pyrometer_alerting.model.incident import Alert
from pyrometer_alerting.model.text import unix_time

MAX_ALERTS = 20_000  # 8 MiB of small alerts
# An alert has three of them. Python needs at least 64 bytes for each, and a body of nothing else would take 500 MB.
MAX_OBJECTS = 400_000
MAX_LABELS = 64  # the rest is left out; labels that identify a part are kept first
_KEPT = frozenset(
    {
        "alertname",
        "cluster",
        "node",
        "gpu",
        "device",
        "port",
        "run",
        "job_id",
        "rank",
        "switch",
        "rack",
        "severity",
    }
)
MAX_VALUE = 4096


class BadDelivery(Exception):  # noqa: N818 - named for what arrived, not for us
    """A body that is not from Alertmanager; `reason` is one of a few words, for a metric label."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True)
class Delivery:
    """One webhook call; `digest` is equal for equal content (peers differ in externalURL).

    `unreadable` says of each alert that was left out what is wrong with it.
    """

    receiver: str
    group: str
    alerts: tuple[Alert, ...]
    truncated: int
    unreadable: tuple[str, ...] = ()

    @cached_property
    def digest(self) -> str:
        """A hash of the content, computed when it is compared, not while Alertmanager waits."""
        return _digest(self.alerts, self.truncated)


def parse(body: bytes) -> Delivery:
    """Parse a webhook body.

    Raises:
        BadDelivery: the body is malformed, or has none but malformed alerts; the message is one line.
    """
    document = _document(body)
    raw = document.get("alerts")
    if not isinstance(raw, list):
        raise BadDelivery("alerts", "alerts must be a list")
    alerts, unreadable = [], []
    for index, item in enumerate(raw[:MAX_ALERTS]):
        try:
            alerts.append(_alert(index, item))
        except BadDelivery as error:
            unreadable.append(str(error))
    if unreadable and not alerts:
        raise BadDelivery("alert", unreadable[0])
    group = f"{_text(document.get('receiver'))} {_text(document.get('groupKey'))}"
    truncated = document.get("truncatedAlerts")
    dropped = min(max(truncated, 0), 10**6) if isinstance(truncated, int) else 0
    dropped += len(raw) - len(alerts)
    # Alertmanager quotes the name as in a regular expression: `web.hook` arrives as `web\.hook`.
    receiver = re.sub(r"\\(.)", r"\1", _text(document.get("receiver")))
    return Delivery(receiver, group, tuple(alerts), dropped, tuple(unreadable))


def _document(body: bytes) -> Mapping[str, Any]:
    if body.count(b"{") + body.count(b"[") > MAX_OBJECTS:
        raise BadDelivery("too_many", f"the body has more than {MAX_OBJECTS:,} objects")
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise BadDelivery("not_json", "the body is not JSON") from None
    if not isinstance(document, dict):
        raise BadDelivery("not_object", "the body is not a JSON object")
    # Grafana's own alerting sends the same alerts as its version 1, with an organization (its page of webhooks).
    if document.get("version") != "4" and not (document.get("version") == "1" and "orgId" in document):
        raise BadDelivery("version", 'this is not an Alertmanager webhook: version must be "4"')
    return document


def _alert(index: int, item: object) -> Alert:
    if not isinstance(item, dict) or item.get("status") not in ("firing", "resolved"):
        raise BadDelivery("alert", f"alerts[{index}] has no status firing or resolved")
    labels = _strings(index, "labels", item.get("labels"))
    starts_at = unix_time(item.get("startsAt"))
    if starts_at is None:
        raise BadDelivery("alert", f"alerts[{index}] has no startsAt")
    firing = item["status"] == "firing"
    return Alert(
        fingerprint=_text(item.get("fingerprint")) or _fingerprint(labels),
        firing=firing,
        labels=labels,
        annotations=_strings(index, "annotations", item.get("annotations") or {}),
        starts_at=starts_at,
        # A firing alert carries Prometheus' expiry time or year 1, which is not an end.
        ends_at=None if firing else unix_time(item.get("endsAt")) or starts_at,
    )


def _strings(index: int, name: str, value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise BadDelivery("alert", f"alerts[{index}].{name} must be an object")
    if not all(isinstance(content, str) for content in value.values()):
        raise BadDelivery("alert", f"alerts[{index}].{name} must hold strings only")
    kept = sorted(value, key=lambda key: key not in _KEPT)[:MAX_LABELS] if len(value) > MAX_LABELS else value
    return {_text(key): _text(value[key]) for key in kept}


def _text(value: object) -> str:
    """Return text that UTF-8 and PostgreSQL can carry (no lone surrogates, no NUL), cut to MAX_VALUE."""
    if type(value) is str and value.isascii() and len(value) <= MAX_VALUE and "\0" not in value:  # nearly all of them
        return value
    return value[:MAX_VALUE].encode("utf-8", "replace").decode().replace("\0", "?") if isinstance(value, str) else ""


def _fingerprint(labels: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(sorted(labels.items())).encode()).hexdigest()[:16]


def _digest(alerts: tuple[Alert, ...], truncated: int) -> str:
    content = sorted(
        (alert.fingerprint, alert.firing, alert.starts_at, alert.ends_at or 0.0, sorted(alert.annotations.items()))
        for alert in alerts
    )
    return hashlib.sha256(json.dumps([content, truncated]).encode()).hexdigest()
