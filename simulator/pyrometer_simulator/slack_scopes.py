"""Scopes of the fake Slack's bot token: which method needs which, as the reference of each method has it."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pyrometer_simulator.slack_blocks import SlackError

# docs.slack.dev/reference/methods: "Required scopes" of each. The fake's channels are public ones.
NEEDED: Mapping[str, str] = {
    "chat.postMessage": "chat:write",
    "chat.update": "chat:write",
    "chat.delete": "chat:write",
    "chat.postEphemeral": "chat:write",
    "conversations.history": "channels:history",
    "conversations.replies": "channels:history",
    "conversations.info": "channels:read",
    "conversations.list": "channels:read",
    "files.getUploadURLExternal": "files:write",
    "files.completeUploadExternal": "files:write",
    "files.info": "files:read",
}
ALL = frozenset({*NEEDED.values(), "commands"})


def check_scope(method: str, granted: Collection[str]) -> None:
    """Check that a token with these scopes may call a method.

    Raises:
        SlackError: missing_scope.
    """
    if method in NEEDED and NEEDED[method] not in granted:
        raise SlackError("missing_scope")
