"""The fake Slack's page: the channel roughly as Slack would show it (blocks, edits, threads)."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timezone
from importlib import resources
from typing import Any

from pyrometer_simulator.slack_channel import Channel, Message
from pyrometer_simulator.slack_chart import chart

_EMOJI = {
    ":red_circle:": "🔴",
    ":large_orange_circle:": "🟠",
    ":large_blue_circle:": "🔵",
    ":white_check_mark:": "✅",
    ":warning:": "⚠️",
}
# Drawn, since not every machine has an emoji font.
_DRAWN = {"🔴": "#e01e5a", "🟠": "#e8912d", "🔵": "#1264a3", "✅": "#2eb67d"}
_MARKUP = re.compile(r"<([^<>\n]+)>")


def render_page(channels: Iterable[Channel], now: float) -> str:
    """The whole page; `now` is Unix seconds, for the clock at the top."""
    listed = list(channels)
    names = "".join(f"<p># {html.escape(channel.name)}</p>" for channel in listed)
    body = "".join(_channel(channel) for channel in listed)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>fake Slack</title>'
        '<meta name="viewport" content="width=device-width,initial-scale=1"><meta http-equiv="refresh" content="3">'
        f'<style>{_style()}</style></head><body><div class="app"><nav><b>Fake workspace</b>'
        f'<p><span class="fake">fake Slack</span></p><p class="t">{_clock(now)}</p>{names}</nav>'
        f"<main>{body}</main></div></body></html>"
    )


def _style() -> str:
    return resources.files("pyrometer_simulator").joinpath("slack_page.css").read_text("utf-8")


def _channel(channel: Channel) -> str:
    newest_first = reversed(list(channel.messages.values()))
    messages = "".join(_message(message) for message in newest_first)
    empty = '<div class="empty">Nothing was posted yet.</div>'
    return f"<section><h2># {html.escape(channel.name)}</h2>{messages or empty}</section>"


def _message(message: Message) -> str:
    edited = f' <span class="edited">(edited {len(message.versions)}x)</span>' if message.versions else ""
    replies = "".join(_message(reply) for reply in message.replies)
    count = f"{len(message.replies)} {'reply' if len(message.replies) == 1 else 'replies'}"
    thread = f'<div class="thread"><span class="t">{count}</span>{replies}</div>' if replies else ""
    blocks = "".join(_block(block) for block in message.blocks) or f'<div class="sec">{mrkdwn(message.text)}</div>'
    return (
        '<div class="msg"><div class="av">P</div><div><span class="who">pyrometer</span>'
        f'<span class="app-tag">APP</span><span class="t">{_clock(message.posted_at)}</span>{edited}'
        f"{blocks}{thread}</div></div>"
    )


def _block(block: Mapping[str, Any]) -> str:
    renderers: dict[str, Callable[[Mapping[str, Any]], str]] = {
        "header": lambda shown: f"<h3>{_text(shown['text'])}</h3>",
        "section": _section,
        "context": lambda shown: (
            '<div class="ctx">' + "".join(f"<span>{_text(e)}</span>" for e in shown["elements"]) + "</div>"
        ),
        "actions": lambda shown: "<div>" + "".join(_button(e) for e in shown["elements"]) + "</div>",
        "divider": lambda _shown: "<hr>",
        "data_visualization": chart,
        "image": _image,
    }
    return renderers[str(block["type"])](block)


def _section(block: Mapping[str, Any]) -> str:
    text = f'<div class="sec">{_text(block["text"])}</div>' if "text" in block else ""
    fields = "".join(f'<div class="sec">{_text(field)}</div>' for field in block.get("fields", []))
    return text + (f'<div class="fields">{fields}</div>' if fields else "")


def _image(block: Mapping[str, Any]) -> str:
    alt = html.escape(str(block["alt_text"]), quote=True)
    return f'<img class="picture" src="/files/{html.escape(str(block["slack_file"]["id"]), quote=True)}" alt="{alt}">'


def _button(element: Mapping[str, Any]) -> str:
    href = html.escape(str(element.get("url", "#")), quote=True)
    return f'<a class="btn" href="{href}">{_text(element["text"])}</a>'


def _text(text: Mapping[str, Any]) -> str:
    if text["type"] == "mrkdwn":
        return mrkdwn(str(text["text"]))
    shown = html.escape(str(text["text"]))
    return _emoji(shown) if text.get("emoji", True) else shown


def mrkdwn(text: str) -> str:
    """Slack's mrkdwn as HTML: <url|text>, <!date^...>, pings (shown loudly), bold, code, emoji."""
    parts, position = [], 0
    for match in _MARKUP.finditer(text):
        parts += [_inline(text[position : match.start()]), _angle(match.group(1))]
        position = match.end()
    return _emoji("".join([*parts, _inline(text[position:])]))


def _angle(body: str) -> str:
    target, _, label = body.partition("|")
    if target.startswith("!date^"):
        unix = target.split("^")[1]
        return f"<time>{_clock(float(unix))}</time>" if unix.isdigit() else html.escape(label)
    if target.startswith(("!", "@", "#")):
        return f'<mark class="ping">PING {html.escape(target)}</mark>'
    if target.startswith(("http://", "https://")):
        return f'<a href="{html.escape(html.unescape(target), quote=True)}">{_inline(label or target)}</a>'
    return html.escape(body)


def _inline(text: str) -> str:
    # Slack text carries only &amp; &lt; &gt;: unescape those, then escape for HTML.
    shown = html.escape(text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    shown = re.sub(r"`([^`\n]+)`", r"<code>\1</code>", shown)
    shown = re.sub(r"(?<!\w)_([^_\n]+)_(?!\w)", r"<i>\1</i>", shown)
    return re.sub(r"(?<!\w)\*([^*\n]+)\*(?!\w)", r"<b>\1</b>", shown)


def _emoji(shown: str) -> str:
    for name, sign in _EMOJI.items():
        shown = shown.replace(name, sign)
    for sign, colour in _DRAWN.items():
        shown = shown.replace(sign, f'<i class="em" style="background:{colour}"></i>')
    return shown


def _clock(unix: float) -> str:
    return datetime.fromtimestamp(unix, tz=timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
