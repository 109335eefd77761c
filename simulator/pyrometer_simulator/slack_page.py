"""The fake Slack's page: channels roughly as Slack shows them (blocks, charts, edits, threads)."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from importlib import resources
from typing import Any

from pyrometer_simulator.slack_channel import Channel, Message

_EMOJI = {
    ":red_circle:": "🔴",
    ":large_orange_circle:": "🟠",
    ":large_blue_circle:": "🔵",
    ":white_check_mark:": "✅",
    ":warning:": "⚠️",
}
# Drawn in CSS, since not every machine has an emoji font.
_EMOJI_COLOURS = {"🔴": "#e01e5a", "🟠": "#e8912d", "🔵": "#1264a3", "✅": "#2eb67d"}
_MARKUP = re.compile(r"<([^<>\n]+)>")
# Sizes of a chart in pixels.
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 640, 220, 44, 12, 12, 40
_COLOURS = ("#1264a3", "#e8912d", "#2eb67d", "#e01e5a", "#7c5cff", "#36c5f0")


def render_page(channels: Iterable[Channel], now: float) -> str:
    """Return the page of all channels; `now` (Unix seconds) is for the clock at the top."""
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
        "data_visualization": _chart,
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
    """Return Slack's mrkdwn as HTML: <url|text>, <!date^...>, pings (highlighted), bold, code, emoji."""
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
    shown = re.sub(r"(?<!\w)~([^~\n]+)~(?!\w)", r"<s>\1</s>", shown)
    return re.sub(r"(?<!\w)\*([^*\n]+)\*(?!\w)", r"<b>\1</b>", shown)


def _emoji(shown: str) -> str:
    for name, sign in _EMOJI.items():
        shown = shown.replace(name, sign)
    for sign, colour in _EMOJI_COLOURS.items():
        shown = shown.replace(sign, f'<i class="em" style="background:{colour}"></i>')
    return shown


def _clock(unix: float) -> str:
    return datetime.fromtimestamp(unix, tz=timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


def _chart(block: Mapping[str, Any]) -> str:
    """Return a data_visualization block as HTML with an SVG."""
    drawn = block["chart"]
    series, axis = drawn["series"], drawn.get("axis_config") or {}
    values = [point["value"] for line in series for point in line["data"]]
    top = max([*values, 1e-9]) * 1.08
    draw = _bars if drawn["type"] == "bar" else _line
    lines = "".join(draw(line["data"], top, index, len(series)) for index, line in enumerate(series))
    legend = "".join(
        f'<span style="color:{_COLOURS[index]}">\u25cf</span> {html.escape(line["name"])} &nbsp;'
        for index, line in enumerate(series)
    )
    return (
        f'<figure class="chart"><figcaption>{html.escape(block["title"])}</figcaption>'
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">{_axes(axis, top)}{lines}</svg>'
        f'<p class="t">{legend}</p></figure>'
    )


def _axes(axis: Mapping[str, Any], top: float) -> str:
    floor = _HEIGHT - _BOTTOM
    grid = "".join(
        f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{_y(top * part, top)}" y2="{_y(top * part, top)}"/>'
        f'<text x="{_LEFT - 6}" y="{_y(top * part, top) + 4}" text-anchor="end">{top * part:.3g}</text>'
        for part in (0, 0.25, 0.5, 0.75, 1)
    )
    categories = axis.get("categories") or []
    every = max(len(categories) // 5, 1)
    labels = "".join(
        f'<text x="{_x(index, len(categories))}" y="{floor + 16}" text-anchor="middle">{html.escape(label)}</text>'
        for index, label in enumerate(categories)
        if index % every == 0
    )
    names = (
        f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 4}" text-anchor="middle">{html.escape(axis.get("x_label", ""))}</text>'
    )
    return grid + labels + names


def _bars(points: Sequence[Mapping[str, Any]], top: float, index: int, count: int) -> str:
    width = 0.7 * (_WIDTH - _LEFT - _RIGHT) / max(len(points), 1) / count
    return "".join(
        f'<rect x="{_x(place, len(points)) + (index - count / 2) * width:.1f}" y="{_y(point["value"], top):.1f}" '
        f'width="{width:.1f}" height="{_HEIGHT - _BOTTOM - _y(point["value"], top):.1f}" fill="{_COLOURS[index]}"/>'
        for place, point in enumerate(points)
    )


def _line(points: Sequence[Mapping[str, Any]], top: float, index: int, _count: int) -> str:
    colour = _COLOURS[index]
    path = " ".join(f"{_x(i, len(points)):.1f},{_y(point['value'], top):.1f}" for i, point in enumerate(points))
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'


def _x(index: int, count: int) -> float:
    return _LEFT + (index + 0.5) * (_WIDTH - _LEFT - _RIGHT) / max(count, 1)


def _y(value: float, top: float) -> float:
    return _HEIGHT - _BOTTOM - value / top * (_HEIGHT - _TOP - _BOTTOM)
