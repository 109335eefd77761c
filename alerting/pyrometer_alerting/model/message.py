"""A message as Slack receives it, and the interface that writes the replies in its thread."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from pyrometer_alerting.model.incident import Incident

Block: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Message:
    """A Slack message: `text` for notifications and screen readers, `blocks` for the screen."""

    text: str
    blocks: list[Block] = field(default_factory=list)
    broadcast: bool = False  # a reply that is also shown in the channel
    kept: bool = False  # a reply that is told even if a newer one follows before it could be

    @property
    def stored(self) -> str:
        """All of it as JSON, as the outbox keeps a reply."""
        return json.dumps(vars(self))

    def digest(self) -> str:
        """Return a hash that is equal for messages that look the same."""
        return hashlib.sha256(json.dumps([self.text, self.blocks]).encode()).hexdigest()


class Replies(Protocol):
    """Writes the replies in an incident's thread: lower layers decide when, `channel` how they read."""

    def event(self, incident: Incident, event: str) -> Message:
        """Build the reply on an event of the incident's life, such as `resolved` or `worse`."""
        ...

    def split(self, rest: Incident, parted: Incident) -> Message:
        """Build the reply in the thread of `rest` on `parted`, which left it."""
        ...
