"""A client of Alertmanager's API v2: read alerts and silences, create and expire silences.

The webhook alone loses information: an alert that ends while it is silenced or inhibited never sends its resolve, and
one that fires and ends while the service is down is never delivered (both observed on a real Alertmanager).
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any
from urllib.parse import quote

from pyrometer_alerting.model.text import unix_time
from pyrometer_kit.alertmanager_config import Configuration, parse
from pyrometer_kit.errors import HttpError
from pyrometer_kit.http_client import HttpClient
from pyrometer_kit.promql import quoted

ANSWER_SECONDS = 5.0
PREFIX = " (its address has to end with its prefix: --web.route-prefix, or /alertmanager of Mimir)"
_GROUPS = "/api/v2/alerts/groups?active=true&silenced=true&inhibited=true&muted=true"


class AlertmanagerError(Exception):
    """No usable answer; the message is one line that may be shown."""


@dataclass(frozen=True)
class ActiveAlert:
    """An alert that Alertmanager has now (ended ones are not reported); `muted` if it is silenced or inhibited.

    `receivers` are the names that its routes lead to, `intervals` the time intervals that mute it for each of them.
    """

    fingerprint: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    starts_at: float
    muted: bool = False
    silenced_by: tuple[str, ...] = ()
    inhibited_by: tuple[str, ...] = ()
    receivers: tuple[str, ...] = ()
    intervals: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def is_muted_to(self, receivers: Collection[str]) -> bool:
        """Return whether it is silenced, inhibited, or muted on all ways to these receivers."""
        return self.muted or bool(self.muted_by(receivers))

    def muted_by(self, receivers: Collection[str]) -> tuple[str, ...]:
        """Return the time intervals that mute it on all ways to these receivers; to any, if it takes none to them."""
        mine = {name: muting for name, muting in self.intervals.items() if name in receivers} or self.intervals
        return tuple(dict.fromkeys(name for muting in mine.values() for name in muting)) if all(mine.values()) else ()


@dataclass(frozen=True)
class Matcher:
    """One matcher of a silence: equality, or an anchored regular expression."""

    name: str
    value: str
    is_regex: bool = False

    def __str__(self) -> str:
        return f"{self.name}{'=~' if self.is_regex else '='}{quoted(self.value)}"


@dataclass(frozen=True)
class Silence:
    """One silence; times are Unix seconds. `active` is false for expired and future ones."""

    id: str
    ends_at: float
    created_by: str
    comment: str
    active: bool = True
    matchers: tuple[Matcher, ...] = ()


class Alertmanager:
    """One Alertmanager by its address; every method raises AlertmanagerError."""

    def __init__(self, url: str) -> None:
        self._client = HttpClient(url, ANSWER_SECONDS)

    def alerts(self, matchers: Sequence[Matcher] = ()) -> list[ActiveAlert]:
        """Call GET /api/v2/alerts; without matchers also GET /api/v2/alerts/groups, which alone knows time intervals.

        Raises:
            AlertmanagerError: there was no usable answer.
        """
        filters = "&".join(f"filter={quote(str(matcher), safe='')}" for matcher in matchers)
        items = self._ask("GET", f"/api/v2/alerts?active=true&silenced=true&inhibited=true&unprocessed=true&{filters}")
        try:
            intervals = {} if matchers else _intervals(self._ask("GET", _GROUPS))
            return [_active_alert(item, intervals.get(str(item["fingerprint"]), {})) for item in items]
        except (KeyError, TypeError, AttributeError):
            raise AlertmanagerError("Alertmanager's answer could not be read") from None

    def configuration(self) -> Configuration | None:
        """Call GET /api/v2/status and return its configuration; None where it shows none.

        Raises:
            AlertmanagerError: there was no usable answer.
        """
        status = self._ask("GET", "/api/v2/status")
        try:
            return parse(str(status["config"]["original"]))
        except (KeyError, TypeError, ValueError):
            return None

    def silences(self) -> list[Silence]:
        """Call GET /api/v2/silences.

        Raises:
            AlertmanagerError: there was no usable answer.
        """
        try:
            return [_silence(item) for item in self._ask("GET", "/api/v2/silences")]
        except (KeyError, TypeError, AttributeError):
            raise AlertmanagerError("Alertmanager's answer could not be read") from None

    def silence(self, matchers: Sequence[Matcher], ends_at: float, created_by: str, comment: str) -> str:
        """Call POST /api/v2/silences.

        Raises:
            AlertmanagerError: the silence was not created, or there was no usable answer.
        """
        document = {
            "matchers": [
                {"name": each.name, "value": each.value, "isRegex": each.is_regex, "isEqual": True} for each in matchers
            ],
            "startsAt": _iso(time.time()),
            "endsAt": _iso(ends_at),
            "createdBy": created_by,
            "comment": comment,
        }
        answer = self._ask("POST", "/api/v2/silences", document)
        if not isinstance(answer, dict) or not isinstance(answer.get("silenceID"), str):
            raise AlertmanagerError("Alertmanager did not return the id of the silence")
        return str(answer["silenceID"])

    def expire(self, silence_id: str) -> None:
        """Call DELETE /api/v2/silence/{id}.

        Raises:
            AlertmanagerError: there was no usable answer.
        """
        self._ask("DELETE", f"/api/v2/silence/{quote(silence_id, safe='')}")

    def close(self) -> None:
        """Close open connections."""
        self._client.close()

    def _ask(self, method: str, path: str, document: object = None) -> Any:  # noqa: ANN401 - JSON
        body = None if document is None else json.dumps(document).encode()
        try:
            with self._client.ask(method, path, body, {"Content-Type": "application/json"}) as answer:
                content = answer.read()
            if answer.status >= 300:
                prefix = PREFIX if answer.status == 404 and method == "GET" else ""
                raise AlertmanagerError(f"Alertmanager refused: HTTP {answer.status}{answer.via}{prefix}")
            return json.loads(content) if content else None
        except HttpError as error:
            raise AlertmanagerError(f"Alertmanager did not answer ({error.reason}): {error}") from None
        except ValueError:
            raise AlertmanagerError("Alertmanager's answer could not be read") from None


def _intervals(groups: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, tuple[str, ...]]]:
    """Return by fingerprint and receiver the intervals that mute it there: none if one of several routes does not."""
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    for group in groups:
        receiver = str(group["receiver"]["name"])
        for item in group["alerts"]:
            muting = tuple(map(str, item["status"].get("mutedBy") or ()))
            ways = found.setdefault(str(item["fingerprint"]), {})
            ways[receiver] = muting if ways.get(receiver, muting) else ()
    return found


def _active_alert(item: Mapping[str, Any], intervals: Mapping[str, tuple[str, ...]]) -> ActiveAlert:
    status = item["status"]
    return ActiveAlert(
        fingerprint=str(item["fingerprint"]),
        labels={str(name): str(value) for name, value in item["labels"].items()},
        annotations={str(name): str(value) for name, value in (item.get("annotations") or {}).items()},
        starts_at=unix_time(item["startsAt"]) or 0.0,
        muted=status.get("state") == "suppressed",
        silenced_by=tuple(map(str, status.get("silencedBy") or ())),
        inhibited_by=tuple(map(str, status.get("inhibitedBy") or ())),
        receivers=tuple(str(receiver["name"]) for receiver in item.get("receivers") or ()),
        intervals=intervals,
    )


def _silence(item: Mapping[str, Any]) -> Silence:
    return Silence(
        id=str(item["id"]),
        ends_at=unix_time(item["endsAt"]) or 0.0,
        created_by=str(item.get("createdBy", "")),
        comment=str(item.get("comment", "")),
        active=item["status"]["state"] == "active",
        matchers=tuple(map(_matcher, item.get("matchers", ()))),
    )


def _matcher(item: Mapping[str, Any]) -> Matcher:
    return Matcher(str(item["name"]), str(item["value"]), is_regex=bool(item.get("isRegex")))


def _iso(unix: float) -> str:
    return datetime.fromtimestamp(unix, tz=timezone.utc).isoformat()
