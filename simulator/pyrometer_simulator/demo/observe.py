"""Looking at the demo from outside: Prometheus's API, the alerting service's API, the fake Slack's channel."""

from __future__ import annotations

import json
import time
import urllib.parse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pyrometer_kit.http_client import get_json


@dataclass(frozen=True)
class Prometheus:
    """Instant queries."""

    url: str

    def value(self, query: str, at: float | None = None) -> float | None:
        """Return the value of a query with one series, at a Unix time or now; None where it has none or fails."""
        values = self.values(query, at)
        return next(iter(values.values())) if len(values) == 1 else None

    def values(self, query: str, at: float | None = None) -> dict[str, float]:
        """Return all values of a query by their labels as JSON; empty where Prometheus does not answer."""
        parameters = {"query": query} | ({} if at is None else {"time": f"{at:.3f}"})
        try:
            found = get_json(f"{self.url}/api/v1/query?{urllib.parse.urlencode(parameters)}")
        except (OSError, ValueError):
            return {}
        result = found.get("data", {}).get("result", [])
        return {json.dumps(series["metric"], sort_keys=True): float(series["value"][1]) for series in result}

    def samples(self, selector: str, at: float) -> list[tuple[float, float]]:
        """Return the stored samples (Unix time, value) of a range selector; empty unless it selects one series."""
        parameters = urllib.parse.urlencode({"query": selector, "time": f"{at:.3f}"})
        try:
            found = get_json(f"{self.url}/api/v1/query?{parameters}")
        except (OSError, ValueError):
            return []
        result = found.get("data", {}).get("result", [])
        return [(float(when), float(value)) for when, value in result[0]["values"]] if len(result) == 1 else []


class SlackView(Protocol):
    """The fake Slack as the director looks at it."""

    @property
    def calls(self) -> Sequence[object]:
        """All calls so far."""
        ...

    def messages(self, channel: str) -> list[dict[str, Any]]:
        """Root messages of a channel, oldest first."""
        ...


class RemoteSlack:
    """A fake Slack that runs elsewhere; asked every half second at most. Nothing is seen while it doesn't answer."""

    def __init__(self, url: str, every_seconds: float = 0.5) -> None:
        self._url = url
        self._every = every_seconds
        self._asked: dict[str, float] = {}
        self._channels: dict[str, list[dict[str, Any]]] = {}
        self.calls: Sequence[object] = ()

    def messages(self, channel: str) -> list[dict[str, Any]]:
        """Root messages of a channel, oldest first."""
        now = time.monotonic()
        if now - self._asked.get(channel, -self._every) >= self._every:
            self._asked[channel] = now
            self._look(channel)
        return self._channels.get(channel, [])

    def _look(self, channel: str) -> None:
        try:
            found = get_json(f"{self._url}/channels/{channel}.json")
        except (OSError, ValueError):
            return
        self._channels[channel], self.calls = found["messages"], range(found["calls"])


def incidents(url: str) -> list[dict[str, Any]]:
    """Return the incidents that the alerting service reports; empty where it does not answer."""
    try:
        found = get_json(f"{url}/api/v1/incidents")
    except (OSError, ValueError):
        return []
    return list(found["incidents"] if isinstance(found, dict) else found)


def shown_text(message: dict[str, Any]) -> str:
    """Return all text that a Slack message shows, its blocks included."""
    return "\n".join([str(message.get("text", "")), *_strings(message.get("blocks", []))])


def _strings(value: Any) -> list[str]:  # noqa: ANN401  any part of a Block Kit message
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for part in value.values() for text in _strings(part)]
    return [text for part in value for text in _strings(part)] if isinstance(value, list) else []
