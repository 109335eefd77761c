"""Build an incident's Slack message, its thread's replies and its pointer: the card is in card.py.

Limits (docs.slack.dev/reference/block-kit/blocks): 50 blocks, header 150, section 3000, 10 fields of 2000, text 4000
recommended, about 13,200 in all. A test with hostile labels checks them.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyrometer_alerting.channel.blocks import (
    FIELD,
    NATIVE_CHART,
    PARAGRAPH,
    TEXT_BYTES,
    Style,
    context,
    mrkdwn,
    section,
)
from pyrometer_alerting.channel.card import card_of, lasted, lost, sign, summary_of, times
from pyrometer_alerting.channel.evidence import cause_line, revised
from pyrometer_alerting.model import text
from pyrometer_alerting.model.alert_names import AT_ONCE
from pyrometer_alerting.model.culprits import culprits
from pyrometer_alerting.model.harm import urgency
from pyrometer_alerting.model.incident import NO_SINGLE_PART, Incident, part_of
from pyrometer_alerting.model.links import board_links, runbook_url
from pyrometer_alerting.model.message import Block, Message

DEGRADE_LEVELS = len(TEXT_BYTES)
WITHOUT_CHART = 1


def build(incident: Incident, style: Style, degrade: int = 0, *, linked: bool = True) -> Message:
    """Build the incident's present card; a higher `degrade` leaves more out.

    The text, which a notification shows, is the header. `linked`: its boards are links, as there are no buttons.
    """
    if incident.joined_into:
        return build_pointer(incident, None, style)
    card = card_of(incident, style.scheduler)
    if degrade >= 3:
        content = "\n".join(card_lines(incident, style)) if degrade < DEGRADE_LEVELS - 1 else text.escape(card.header)
        return Message(text.fit(content, TEXT_BYTES[degrade]))
    footer = [*card.state, *([f"*{text.mrkdwn(style.notice, 75)}*"] if style.notice else [])]
    links = [f"<{url}|{name}>" for name, url in pages(incident, style)] if linked else []
    full = [
        _header(card.header),
        section(card.body),
        section(f"*Now:* {card.now}" if card.now else ""),
        context(links) if degrade < 2 else None,
        context(footer) if degrade < 2 else None,
    ]
    return Message(text.escape(card.header), [block for block in full if block is not None])


def card_lines(incident: Incident, style: Style) -> list[str]:
    """Return the card as lines of mrkdwn, for what shows no blocks."""
    notice = [f"[{text.mrkdwn(style.notice, 75)}]"] if style.notice else []
    return [*card_of(incident, style.scheduler).lines, *notice]


def pages(incident: Incident, style: Style) -> list[tuple[str, str]]:
    """Return (name, URL for mrkdwn) of the run's and of the part's board, and of the runbook."""
    named = {"Suspect 1": "Part", "Suspect 2": ""}
    links = [(named.get(name, name), url) for name, url in board_links(incident, style.grafana_url)]
    run = [(f"{name} board", url) for name, url in links if name == "Run"]
    part = [(f"{name} board", url) for name, url in links if name not in ("", "Run")]
    part.sort(key=lambda link: link[0] != "Part board")  # that of the suspect first
    annotations = incident.newest().annotations
    url = runbook_url(annotations.get("runbook", "") or annotations.get("runbook_url", ""), style.runbook_url)
    return [*run, *part[:1], *([("Runbook", url)] if url else [])]


def has_chart(message: Message) -> bool:
    """Return whether Slack must be able to draw a chart for this message."""
    return any(block["type"] == NATIVE_CHART for block in message.blocks)


def build_reply(incident: Incident, event: str, style: Style) -> Message:
    """Build the thread's reply on an event: an edit pings nobody, a reply does."""
    grave = [alert for alert in incident.members if alert.firing and alert.name in AT_ONCE]
    alert = incident.newest()
    if event in ("news", "worse") and grave:
        alert = max(reversed(grave), key=lambda one: one.starts_at)
    struck = text.mrkdwn(alert.annotations.get("summary", alert.name), 300)
    revision = incident.diagnosis.revision if incident.diagnosis is not None else ""
    joined, cost = text.mrkdwn(", ".join(incident.alertnames()[1:4]), 300), lost(incident)
    summary = {
        "resolved": f"\u2705 Resolved after {text.duration(lasted(incident))}{f'; about {cost}' if cost else ''}",
        "reopened": f"{sign(incident)} Firing again, {times(incident)}",
        "resumed": f"{sign(incident)} Still firing; Alertmanager had stopped reporting it for a while",
        "again": f"{sign(incident)} The run is slow again: {text.mrkdwn(incident.alertname, 100)}",
        "worse": f"{sign(incident)} Worse: now {urgency(incident)}{f'. {struck}' if grave else ''}",
        "revised": f"{sign(incident)} Revised: {revised(revision)}",
        "joined": f"{sign(incident)} One incident with {joined}",
        "news": f"{sign(incident)} {struck}",
    }[event]
    brief = event in ("resolved", "revised")
    detail = "" if brief else text.mrkdwn(alert.annotations.get("description", ""), PARAGRAPH)
    if event == "resolved" and incident.diagnosis is not None and incident.diagnosis.names_cause:
        detail = text.mrkdwn(f"It was {cause_line(incident.diagnosis.causes[0])}", PARAGRAPH)
    part = "" if brief or event == "news" else text.mrkdwn(part_of(alert.labels), FIELD)
    notice = f"[{text.mrkdwn(style.notice, 75)}]" if style.notice else ""
    line = " ".join(piece for piece in (summary, part and f"({part})", notice) if piece)
    content = f"{line}\n{detail}" if detail else line
    return Message(content, [{"type": "section", "text": mrkdwn(content)}])


def build_split_reply(rest: Incident, parted: Incident, style: Style) -> Message:
    """Build the thread's reply on a part that was split off; with the resolve if nothing else fired."""
    parts = text.mrkdwn(", ".join(culprits(parted)[:3]) or parted.alertname, FIELD)
    why = f"run {text.mrkdwn(rest.run, FIELD)} does not use it"
    onward = f"{text.mrkdwn(parted.alertname, 100)} continues in its own message"
    lines = [f"{sign(parted)} {parts} is no longer part of this: {why}. {onward}."]
    if not rest.firing:
        lines.append(build_reply(rest, "resolved", style).text)
    content = "\n".join(lines)
    return Message(content, [{"type": "section", "text": mrkdwn(content)}])


@dataclass(frozen=True)
class ThreadReplies:
    """Builds replies in this installation's style."""

    style: Style

    def event(self, incident: Incident, event: str) -> Message:
        """Build the reply on an event, as `build_reply` does."""
        return build_reply(incident, event, self.style)

    def split(self, rest: Incident, parted: Incident) -> Message:
        """Build the reply on a split, as `build_split_reply` does."""
        return build_split_reply(rest, parted, self.style)


def build_pointer(incident: Incident, into: Incident | None, style: Style) -> Message:
    """Build what remains of the message of an absorbed incident, naming the one that absorbed it."""
    alert = incident.newest()
    about = "another incident" if into is None else text.mrkdwn(_about(into), FIELD)
    summary = text.plain(alert.annotations.get("summary", ""), 100) or summary_of(incident)
    content = f"\u21aa {text.mrkdwn(summary, 120)}: now part of the message about {about}"
    if style.notice:
        content += f" [{text.mrkdwn(style.notice, 75)}]"
    return Message(content, [{"type": "section", "text": mrkdwn(content)}])


def _about(incident: Incident) -> str:
    """Return `run llama-70b`, `switch leaf-12`, `GpuLost at many parts` or `gpu-042 GPU 3`, which never change."""
    if incident.run:
        return f"run {incident.run_title}"
    if incident.domain == NO_SINGLE_PART:
        return f"{incident.alertname} at many parts"
    return incident.domain or part_of(incident.newest().labels) or incident.alertname


def _header(content: str) -> Block:
    return {"type": "header", "text": {"type": "plain_text", "text": content, "emoji": True}}
