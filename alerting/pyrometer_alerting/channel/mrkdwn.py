"""Parse Slack's markup, for the two other places that show the same message: the terminal and the page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyrometer_alerting.model.text import unescape, utc

_TOKEN = re.compile(r"`([^`\n]+)`|<([^<>\n]+)>|(?<!\w)\*([^*\n]+)\*(?!\w)|(?<!\w)_([^_\n]+)_(?!\w)")


@dataclass(frozen=True)
class Span:
    """A piece of text: `kind` is text, bold, italic, code, link or time; `url` is for links, `unix` for times."""

    kind: str
    text: str
    url: str = ""
    unix: float = 0.0


def spans(mrkdwn: str) -> Iterator[Span]:
    """Yield the pieces of a mrkdwn text, with Slack's escapes undone."""
    position = 0
    for match in _TOKEN.finditer(mrkdwn):
        if match.start() > position:
            yield Span("text", unescape(mrkdwn[position : match.start()]))
        yield _span(match)
        position = match.end()
    if position < len(mrkdwn):
        yield Span("text", unescape(mrkdwn[position:]))


def _span(match: re.Match[str]) -> Span:
    code, angle, bold, italic = match.groups()
    if code is not None:
        return Span("code", unescape(code))
    if bold is not None:
        return Span("bold", unescape(bold))
    if italic is not None:
        return Span("italic", unescape(italic))
    target, _, label = angle.partition("|")
    if target.startswith("!date^"):
        unix = float(target.split("^")[1])
        return Span("time", utc(unix), unix=unix)
    return Span("link", unescape(label or target), url=unescape(target))


def texts(block: dict[str, Any]) -> list[list[Span]]:
    """Return the texts of a block as spans: the text itself, then its fields or elements."""
    objects = [block["text"]] if "text" in block else []
    objects += block.get("fields", []) + block.get("elements", [])
    return [
        list(spans(item["text"])) if item["type"] == "mrkdwn" else [Span("text", str(item["text"]))] for item in objects
    ]
