"""The local page: incidents, newest first, from exactly the blocks that Slack gets; no script, nothing external."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyrometer_alerting.channel.chart_block import svg
from pyrometer_alerting.channel.document import document
from pyrometer_alerting.channel.mrkdwn import Span, texts
from pyrometer_alerting.model.harm import urgency
from pyrometer_alerting.model.incident import Incident
from pyrometer_alerting.model.message import Message
from pyrometer_alerting.model.text import duration, utc

_DOTS = {"\U0001f534": "critical", "\U0001f7e0": "warning", "\U0001f535": "info", "\u2705": "resolved"}


@dataclass(frozen=True)
class Card:
    """An incident with its card and its evidence; `delivery` is a short word on how far the message got."""

    incident: Incident
    message: Message
    evidence: Message
    delivery: str


@dataclass(frozen=True)
class Banner:
    """The top of the page: the notice, and the service's own troubles, one line each."""

    notice: str = ""
    trouble: tuple[str, ...] = ()


def render(cards: Sequence[Card], banner: Banner, now: float) -> str:
    """Return the whole page, which reloads itself every 5 s."""
    firing = sum(item.incident.firing for item in cards)
    state = f"{firing} firing" if firing else "all quiet"
    articles = "".join(_card(item, now) for item in cards) or '<p class="empty">No incidents yet.</p>'
    notice = f'<p class="notice">{html.escape(banner.notice)}</p>' if banner.notice else ""
    trouble = "".join(f'<p class="trouble">{html.escape(line)}</p>' for line in banner.trouble)
    body = (
        f'<header><h1>Pyrometer</h1><span class="state {"hot" if firing else "calm"}">{state}</span>'
        f'<a href="runbooks">Runbooks</a><time>{utc(now)}</time></header>'
        f"{notice}{trouble}<main>{articles}</main>"
    )
    return document(html.escape(state), body, reload_seconds=5)


def blocks(message: Message) -> str:
    """Return a message's blocks as HTML."""
    return "".join(_block(block) for block in message.blocks)


def _card(item: Card, now: float) -> str:
    incident = item.incident
    state = urgency(incident) if incident.firing else "resolved"
    since = incident.started_at if incident.resolved_at is None else incident.resolved_at
    age = (
        f"{'firing for' if incident.firing else 'resolved'} {duration(now - since)}{'' if incident.firing else ' ago'}"
    )
    return (
        f'<article class="{state}" id="{html.escape(incident.id, quote=True)}">'
        f'<div class="corner"><span>{age}</span><span>{html.escape(item.delivery)}</span></div>'
        f"{blocks(item.message)}{_folded(item)}</article>"
    )


def _folded(item: Card) -> str:
    """Return the evidence, closed: the card says what to do."""
    shown = blocks(item.evidence)
    return f"<details><summary>Evidence</summary>{shown}</details>" if shown else ""


def _block(block: dict[str, Any]) -> str:
    if block["type"] == "data_visualization":
        return svg(block)
    if block["type"] in ("divider", "image"):
        return "<hr>" if block["type"] == "divider" else ""  # the page cannot read Slack's files
    pieces = ["".join(_span(span) for span in piece) for piece in texts(block)]
    if block["type"] == "header":
        return f"<h2>{_with_dots(pieces[0])}</h2>"
    if block["type"] == "context":
        return '<footer class="context">' + "".join(f"<span>{piece}</span>" for piece in pieces) + "</footer>"
    kind = "now" if pieces[0].startswith("<b>Now:</b>") else "text"
    return f'<p class="{kind}">{pieces[0]}</p>'


def _with_dots(markup: str) -> str:
    """Replace state signs by drawn dots: not every machine has an emoji font."""
    for sign, kind in _DOTS.items():
        markup = markup.replace(sign, f'<i class="dot {kind}"></i>')
    return markup


def _span(span: Span) -> str:
    content = html.escape(span.text)
    if span.kind == "bold":
        return f"<b>{content}</b>"
    if span.kind == "italic":
        return f"<i>{content}</i>"
    if span.kind == "code":
        return f"<code>{content}</code>"
    if span.kind == "time":
        return f"<time>{content}</time>"
    if span.kind == "link" and span.url.startswith(("http://", "https://")):
        return f'<a href="{html.escape(span.url, quote=True)}" rel="noreferrer">{content}</a>'
    return content
