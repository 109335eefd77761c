"""Microsoft Teams: an Adaptive Card to a workflow with the trigger *When a Teams webhook request is received*.

Office 365 connectors and their message cards are retired. A workflow answers 202 and can neither return nor edit a
card: each event is a separate card. Card elements: https://adaptivecards.io/explorer/, version 1.4.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pyrometer_alerting.channel.outlets.http import Endpoint
from pyrometer_alerting.channel.outlets.notice import ACKNOWLEDGED, RESOLVED, Notice, Outlet
from pyrometer_alerting.channel.terminal import render
from pyrometer_alerting.model.harm import urgency
from pyrometer_alerting.model.message import Message

_CARD = "application/vnd.microsoft.card.adaptive"
_SCHEMA = "http://adaptivecards.io/schemas/adaptive-card.json"
VERSION = "1.4"
# Teams takes messages of 28 KB (learn.microsoft.com, connectors' known limits); JSON escapes may double a text.
_TEXT, _ACTIONS = 9000, 6
_COLOURS = {"critical": "attention", "warning": "warning", "info": "accent"}


@dataclass(frozen=True, repr=False)
class Teams(Outlet):
    """Posts cards to the workflow's address, which is the secret."""

    endpoint: Endpoint

    def send(self, notice: Notice) -> None:
        """Post a card; an acknowledgement in Slack is shown by the next one."""
        if notice.event == ACKNOWLEDGED:
            return
        attachment = {"contentType": _CARD, "contentUrl": None, "content": card(notice)}
        self.endpoint.call("POST", json.dumps({"type": "message", "attachments": [attachment]}).encode(), {})


def card(notice: Notice) -> dict[str, Any]:
    """Return the notice as an Adaptive Card: the title in the colour of its state, the message, its links."""
    colour = "good" if notice.event == RESOLVED else _COLOURS[urgency(notice.incident)]
    body = [_text(notice.title, weight="bolder", size="medium", color=colour)]
    if not notice.short:
        body += [_text(paragraph) for paragraph in _paragraphs(notice)]
    return {
        "$schema": _SCHEMA,
        "type": "AdaptiveCard",
        "version": VERSION,
        "body": body,
        "actions": [{"type": "Action.OpenUrl", "title": name, "url": url} for name, url in notice.links[:_ACTIONS]],
    }


def _paragraphs(notice: Notice) -> list[str]:
    """Return the card's blocks as text, without its header: the evidence is longer than a card may be."""
    paragraphs, room = [], _TEXT
    for block in notice.message.blocks:
        if block["type"] == "divider":
            break
        if block["type"] == "header":
            continue
        paragraph = render(Message("", [block])).strip()
        room -= len(paragraph)
        if room < 0:
            break
        paragraphs.append(paragraph)
    return paragraphs


def _text(content: str, **style: str) -> dict[str, Any]:
    # A TextBlock knows some Markdown: a single line break becomes a space, and a name in brackets a link.
    shown = content.replace("\n", "\n\n").replace("[", "\\[").replace("](", "\\](")
    return {"type": "TextBlock", "text": shown, "wrap": True, **style}
