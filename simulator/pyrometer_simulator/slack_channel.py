"""The channels of the fake Slack: messages, threads, edits, history; and its rate limits."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyrometer_simulator.slack_blocks import SlackError, check_message

BOT_USER, TEAM = "U0PYROMETER", "T0FAKE"


@dataclass
class Message:
    """One message as Slack stores it; `versions` holds its content before each edit."""

    ts: str
    text: str
    blocks: list[Any]
    metadata: Mapping[str, Any] | None
    posted_at: float
    thread_ts: str | None = None
    edited_at: float | None = None
    versions: list[dict[str, Any]] = field(default_factory=list)
    replies: list[Message] = field(default_factory=list)

    def to_json(self, *, metadata: bool = True) -> dict[str, Any]:
        """Return the message in the shape of conversations.history."""
        shown: dict[str, Any] = {
            "type": "message",
            "user": BOT_USER,
            "bot_id": "B0PYROMETER",
            "ts": self.ts,
            "text": self.text,
            "blocks": self.blocks,
        }
        if self.thread_ts or self.replies:
            shown |= {"thread_ts": self.thread_ts or self.ts, "reply_count": len(self.replies)}
        if self.edited_at is not None:
            shown["edited"] = {"user": BOT_USER, "ts": f"{self.edited_at:.6f}"}
        if metadata and self.metadata is not None:
            shown["metadata"] = dict(self.metadata)
        return shown


@dataclass
class Channel:
    """A channel: root messages by ts, oldest first."""

    id: str
    name: str
    archived: bool = False
    member: bool = True
    messages: dict[str, Message] = field(default_factory=dict)
    _last_ts: float = 0.0

    def post(self, args: Mapping[str, Any]) -> Message:
        """Add a message or a reply.

        Raises:
            SlackError: Slack would refuse it.
        """
        self._check_open()
        check_message(args)
        thread_ts = args.get("thread_ts")
        message = Message(
            ts=self._next_ts(),
            text=str(args.get("text") or ""),
            blocks=list(args.get("blocks") or []),
            metadata=args.get("metadata"),
            posted_at=time.time(),
            thread_ts=None if thread_ts is None else str(thread_ts),
        )
        if message.thread_ts is None:
            self.messages[message.ts] = message
        else:
            self._root(message.thread_ts, "thread_not_found").replies.append(message)
        return message

    def update(self, args: Mapping[str, Any]) -> Message:
        """Edit a message in place and keep its previous content.

        Raises:
            SlackError: Slack would refuse it.
        """
        self._check_open()
        message = self.find(str(args.get("ts", "")))
        check_message(args, edits=True)
        message.versions.append({"text": message.text, "blocks": message.blocks, "until": time.time()})
        message.text, message.blocks = str(args.get("text") or ""), list(args.get("blocks") or [])
        message.metadata = args.get("metadata", message.metadata)
        message.edited_at = time.time()
        return message

    def delete(self, ts: str) -> None:
        """Remove a root message or a reply.

        Raises:
            SlackError: message_not_found.
        """
        message = self.find(ts)
        if message.thread_ts is None:
            del self.messages[ts]
        else:
            self.messages[message.thread_ts].replies.remove(message)

    def find(self, ts: str) -> Message:
        """Return the root message or reply with this ts.

        Raises:
            SlackError: message_not_found.
        """
        for root in self.messages.values():
            for message in (root, *root.replies):
                if message.ts == ts:
                    return message
        raise SlackError("message_not_found")

    def thread(self, ts: str) -> list[Message]:
        """Return the root message and its replies, oldest first.

        Raises:
            SlackError: thread_not_found.
        """
        root = self._root(ts, "thread_not_found")
        return [root, *root.replies]

    def _root(self, ts: str, error: str) -> Message:
        if ts not in self.messages:
            raise SlackError(error)
        return self.messages[ts]

    def _check_open(self) -> None:
        if self.archived:
            raise SlackError("is_archived")
        if not self.member:
            raise SlackError("not_in_channel")

    def _next_ts(self) -> str:
        self._last_ts = max(time.time(), self._last_ts + 1e-6)
        return f"{self._last_ts:.6f}"


# Calls per minute of each method by its tier (docs.slack.dev/apis/web-api/rate-limits; the tier is on the method's own
# page). conversations.history and .replies: tier 3 for an app that its own workspace made. auth.test allows hundreds.
TIERS: Mapping[str, float] = {
    "chat.update": 50.0,
    "chat.delete": 50.0,
    "chat.postEphemeral": 100.0,
    "conversations.history": 50.0,
    "conversations.replies": 50.0,
    "conversations.info": 50.0,
    "conversations.list": 20.0,
    "files.getUploadURLExternal": 100.0,
    "files.completeUploadExternal": 100.0,
    "files.info": 100.0,
    "views.open": 100.0,
    "apps.connections.open": 1.0,
    "auth.test": 300.0,
}
TIER_3 = 50.0


@dataclass(frozen=True)
class RateLimits:
    """Calls per second and burst, per method; chat.postMessage counts per channel. `tier3_*` scale all tiers."""

    post_per_second: float = 1.0
    post_burst: int = 10
    tier3_per_minute: float = 50.0
    tier3_burst: int = 50

    def of(self, method: str) -> tuple[float, int]:
        """Return (calls per second, burst) of a method."""
        if method == "chat.postMessage":
            return self.post_per_second, self.post_burst
        share = TIERS.get(method, TIER_3) / TIER_3
        return share * self.tier3_per_minute / 60, max(round(share * self.tier3_burst), 10)


class RateLimiter:
    """A token bucket per (method, channel)."""

    def __init__(self, limits: RateLimits) -> None:
        self._limits = limits
        self._buckets: dict[tuple[str, str], tuple[float, float]] = {}

    def wait_seconds(self, method: str, channel: str) -> float:
        """Take a token; return 0, or the seconds until the next one if there is none."""
        rate, burst = self._limits.of(method)
        key = (method, channel if method == "chat.postMessage" else "")
        now = time.monotonic()
        tokens, at = self._buckets.get(key, (float(burst), now))
        tokens = min(float(burst), tokens + (now - at) * rate)
        taken = tokens >= 1
        self._buckets[key] = (tokens - 1 if taken else tokens, now)
        return 0.0 if taken else (1 - tokens) / rate


def page_of(messages: Sequence[Message], args: Mapping[str, Any]) -> dict[str, Any]:
    """Return one page of messages between `oldest` and `latest`, with a cursor when more follow."""
    oldest, latest = float(args.get("oldest") or 0), float(args.get("latest") or math.inf)
    limit, start = min(int(args.get("limit") or 100), 999), int(args.get("cursor") or 0)
    wanted = [message for message in messages if oldest <= float(message.ts) <= latest]
    metadata = str(args.get("include_all_metadata", "")).lower() in ("1", "true")
    shown = [message.to_json(metadata=metadata) for message in wanted[start : start + limit]]
    cursor = str(start + limit) if start + limit < len(wanted) else ""
    return {"messages": shown, "has_more": bool(cursor), "response_metadata": {"next_cursor": cursor}}
