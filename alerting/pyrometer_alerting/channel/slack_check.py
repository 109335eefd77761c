"""Check Slack's side of the configuration: token, scopes, channels and Socket Mode, and report what is missing."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from pyrometer_alerting.channel.breaker import SlackFailure
from pyrometer_alerting.channel.slack import ChannelInfo, WebSlack
from pyrometer_alerting.channel.slack_remedies import INVITE, REINSTALL, REMEDIES, RESTORE
from pyrometer_alerting.model.message import Message
from pyrometer_kit.finding import Finding


class Wanted(NamedTuple):
    """Describe what the configuration needs from Slack.

    Attributes:
        channels: names or ids, the service's own first.
        app_token: empty without buttons.
        pictures: whether curves may have to be uploaded as pictures.
        post: whether to post a test message to the first channel.
    """

    channels: Sequence[str]
    app_token: str = ""
    pictures: bool = True
    post: bool = False


def check(slack: WebSlack, wanted: Wanted) -> Iterator[Finding]:
    """Yield Slack's answer for each part of the configuration; posts nothing unless ``wanted.post``."""
    try:
        identity = slack.identity()
    except SlackFailure as error:
        yield _refused("bot token", error)
        return
    yield Finding("ok", f"bot token: {identity.bot} of workspace {identity.workspace}")
    infos: dict[str, ChannelInfo] = {}
    for channel in wanted.channels:
        yield from _channel(slack, channel, infos)
    yield from _scopes(identity.scopes, wanted, infos)
    yield _buttons(slack, wanted.app_token)
    if wanted.post:
        yield _round_trip(slack, wanted.channels[0])


def _channel(slack: WebSlack, channel: str, infos: dict[str, ChannelInfo]) -> Iterator[Finding]:
    try:
        info = infos[channel] = slack.channel_info(slack.channel_id(channel))
    except SlackFailure as error:
        if error.code == "missing_scope":
            yield Finding(
                "note", f"channel {channel}: not looked up, which needs channels:read (groups:read if private)"
            )
        else:
            yield _refused(f"channel {channel}", error)
        return
    if info.archived:
        yield Finding("missing", f"channel #{info.name} is archived", RESTORE)
    elif not info.member:
        yield Finding("missing", f"channel #{info.name}: the bot is not a member", INVITE)
    else:
        yield Finding("ok", f"channel #{info.name}: the bot is a member")


def _scopes(granted: Collection[str], wanted: Wanted, infos: dict[str, ChannelInfo]) -> Iterator[Finding]:
    if not granted:  # a proxy that drops headers
        yield Finding("note", "scopes: Slack's answer does not list them")
        return
    missing = {scope: reason for scope, reason in _needed(wanted, infos) if scope not in granted}
    yield from (Finding("missing", f"scope {scope}, for {reason}", REINSTALL) for scope, reason in missing.items())
    if not missing:
        yield Finding("ok", f"scopes: {', '.join(sorted(granted))}")


def _needed(wanted: Wanted, infos: dict[str, ChannelInfo]) -> Iterator[tuple[str, str]]:
    yield "chat:write", "messages"
    for kind in sorted({"groups" if info.private else "channels" for info in infos.values()} or {"channels"}):
        yield f"{kind}:history", "finding our own message again after a crash, so that nothing is posted twice"
    if any(channel.startswith("#") for channel in wanted.channels):
        yield "channels:read", "channels given by name"
    if wanted.app_token:
        yield "commands", "/pyrometer"
    if wanted.pictures:
        yield "files:write", "pictures, where the workspace has no chart block"
        yield "files:read", "the state of an uploaded picture"


def _buttons(slack: WebSlack, app_token: str) -> Finding:
    if not app_token:
        return Finding("note", "buttons and /pyrometer are off", "--slack.app-token-file switches them on")
    try:
        slack.open_socket(app_token)
    except SlackFailure as error:
        return _refused("app token", error)
    return Finding("ok", "app token: Socket Mode opens")


def _round_trip(slack: WebSlack, channel: str) -> Finding:
    """Post, find, edit and delete a message, as the outbox does with each message."""
    key = f"check-{time.time_ns()}"
    metadata = {"op_id": key}
    try:
        channel_id, ts = slack.post(channel, _test_message("a test message, deleted at once"), metadata, None)
        found = slack.find(channel_id, key, float(ts) - 1, None)
        slack.update(channel_id, ts, _test_message("a test message, edited"), metadata)
        slack.delete(channel_id, ts)
    except SlackFailure as error:
        return _refused("test message", error)
    if found != [ts]:
        return Finding(
            "missing", "test message: posted, but not found again", "nothing to do: report this output as a bug"
        )
    return Finding("ok", "test message: posted, found, edited and deleted")


def _test_message(text: str) -> Message:
    return Message(f"Pyrometer: {text}", [{"type": "section", "text": {"type": "plain_text", "text": text}}])


def _refused(what: str, error: SlackFailure) -> Finding:
    return Finding("missing", f"{what}: Slack says {error.code}", REMEDIES.get(error.code, ""))
