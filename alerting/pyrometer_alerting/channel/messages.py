"""Build an incident's Slack message: Block Kit within every limit by construction, and the same as plain text.

Limits (docs.slack.dev/reference/block-kit/blocks): 50 blocks, header 150, section 3000, 10 fields of 2000, text 4000
recommended, about 13,200 in all. A full message here has at most 11 blocks, of 150 + 900 + 300 + 8 * 300 + 2800 + 1800
characters, and a chart of 3,000; a test with hostile labels checks it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pyrometer_alerting.channel.chart_block import chart_block
from pyrometer_alerting.channel.members import members_text
from pyrometer_alerting.model import text
from pyrometer_alerting.model.alert_names import DEATH
from pyrometer_alerting.model.culprits import culprits
from pyrometer_alerting.model.incident import NO_SINGLE_PART, Cause, Incident, part_of
from pyrometer_alerting.model.links import (
    alertmanager_link,
    board_links,
    log_links,
    prometheus_link,
    runbook_url,
    tracker_links,
)
from pyrometer_alerting.model.message import Block, Message

MAX_CAUSES, MAX_SEEN = 5, 2
FIELD, PARAGRAPH, CAUSES = 300, 900, 2800
MAX_LINKS, LINKS = 10, 1800  # elements that a context block may have, and their characters
# By level: 0 everything, 1 without chart, 2 without fields and context, 3 plain text only, 4 the headline alone. Each
# is shorter: an edit takes 4,000 bytes of `text` as sent (docs.slack.dev/reference/methods/chat.update, msg_too_long).
TEXT_BYTES = (3900, 3000, 2000, 1000, 600)
DEGRADE_LEVELS = len(TEXT_BYTES)
WITHOUT_CHART = 1
NATIVE_CHART = "data_visualization"
CHARTS = (NATIVE_CHART, "image")


@dataclass(frozen=True)
class Style:
    """The common part of all messages of this installation: a notice, and the addresses for links."""

    notice: str = ""
    grafana_url: str = ""
    logs: str = ""  # uid of Grafana's data source of logs
    alertmanager_url: str = ""
    prometheus_url: str = ""  # as browsers reach it
    runbook_url: str = ""  # base of a runbook's path
    charts: str = "auto"  # Slack's chart block if the workspace has it, else a picture; or `picture`, or `off`


def build(incident: Incident, style: Style, degrade: int = 0, *, native: bool = True) -> Message:
    """Build the incident's present message; a higher `degrade` leaves more out.

    Where the workspace has no chart block (`native` is False) the chart is a picture, once there is one.
    """
    if incident.joined_into:
        return build_pointer(incident, None, style)
    full = [
        _header(incident),
        _section(_what(incident)),
        _section(_origin(incident)),
        _fields(incident),
        _section(causes_text(incident)),
        _chart(incident, style, native=native),
        _section(members_text(incident)),
        _section(_flaps(incident)),
        _section(_what_to_do(incident, style)),
        _context(_links(incident, style)),
        _context(_footer(incident, style)),
    ]
    blocks = [block for block in full if block is not None]
    if degrade >= 1:
        blocks = [block for block in blocks if block["type"] not in CHARTS]
    if degrade >= 2:
        blocks = [block for block in blocks if block["type"] in ("header", "section") and "fields" not in block]
    content = _summary(incident, style) if degrade < DEGRADE_LEVELS - 1 else text.escape(headline(incident))
    return Message(text.fit(content, TEXT_BYTES[degrade]), [] if degrade >= 3 else blocks)


def has_chart(message: Message) -> bool:
    """Return whether Slack must be able to draw a chart for this message."""
    return any(block["type"] == NATIVE_CHART for block in message.blocks)


def build_reply(incident: Incident, event: str, style: Style) -> Message:
    """Build the thread's reply on an event: an edit pings nobody, a reply does."""
    deaths = [alert for alert in incident.members if alert.firing and alert.name == DEATH]
    alert = deaths[-1] if event == "died" and deaths else incident.newest()
    revision = incident.diagnosis.revision if incident.diagnosis is not None else ""
    joined = text.mrkdwn(", ".join(incident.alertnames()[1:4]), 300)
    summary = {
        "resolved": f"\u2705 Resolved after {text.duration(_lasted(incident))}{_lost(incident, '; about ')}",
        "reopened": f"{sign(incident)} Firing again, {_times(incident)}",
        "resumed": f"{sign(incident)} Still firing; Alertmanager had stopped reporting it for a while",
        "again": f"{sign(incident)} The run is slow again: {text.mrkdwn(incident.alertname, 100)}",
        "worse": f"{sign(incident)} Worse: now {incident.severity}",
        "revised": f"{sign(incident)} Revised: {text.mrkdwn(revision, PARAGRAPH)}",
        "joined": f"{sign(incident)} One incident with {joined}",
        "died": f"{sign(incident)} {text.mrkdwn(alert.annotations.get('summary', 'The run died'), 300)}",
    }[event]
    brief = event in ("resolved", "revised")
    detail = "" if brief else text.mrkdwn(alert.annotations.get("description", ""), PARAGRAPH)
    part = "" if brief or event == "died" else text.mrkdwn(part_of(alert.labels), FIELD)
    notice = f"[{text.mrkdwn(style.notice, 75)}]" if style.notice else ""
    line = " ".join(piece for piece in (summary, part and f"({part})", notice) if piece)
    content = f"{line}\n{detail}" if detail else line
    return Message(content, [{"type": "section", "text": _mrkdwn(content)}])


def build_split_reply(rest: Incident, parted: Incident, style: Style) -> Message:
    """Build the thread's reply on a part that was split off; with the resolve if nothing else fired."""
    parts = text.mrkdwn(", ".join(culprits(parted)[:3]) or parted.alertname, FIELD)
    why = f"run {text.mrkdwn(rest.run, FIELD)} does not use it"
    onward = f"{text.mrkdwn(parted.alertname, 100)} continues in its own message"
    lines = [f"{sign(parted)} {parts} is no longer part of this: {why}. {onward}."]
    if not rest.firing:
        lines.append(build_reply(rest, "resolved", style).text)
    content = "\n".join(lines)
    return Message(content, [{"type": "section", "text": _mrkdwn(content)}])


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


def headline(incident: Incident) -> str:
    """Return the incident in one line, with the culprit: clean but not escaped, at most 150 units."""
    alert = incident.newest()
    summary = text.clean(alert.annotations.get("summary", "")) or _fallback_summary(incident)
    if _is_domain(incident):
        summary = _domain_summary(incident)
    blamed = culprits(incident)
    # The likeliest alone: two names side by side would read as two culprits.
    counted = _is_domain(incident)  # the summary has the number already
    more = f" (+{len(blamed) - 1})" if len(blamed) > 1 and not counted else ""
    tail = f": {blamed[0]}{more}" if blamed and not _names(summary, text.clean(blamed[0])) else ""
    state = "" if incident.firing else "Resolved: "
    # The culprit must survive the cut: the summary is shortened.
    tail = text.plain(tail, 70)
    return f"{sign(incident)} {state}" + text.plain(summary, 130 - text.units(tail)) + tail


def _names(summary: str, part: str) -> bool:
    """Return whether the summary names the part: `rank 17 on gpu-042` is gpu-042 rank 17."""
    return part in summary or set(part.split()) <= set(re.split(r"[\s:,;]+", summary))


def _domain_summary(incident: Incident) -> str:
    """Summarize what a switch, a rack or a storm affects: `NicLinkFlapping at 300 parts of 38 nodes`."""
    names = incident.alertnames()
    parts = {part_of(alert.labels) for alert in incident.members}
    nodes = {alert.labels["node"] for alert in incident.members if "node" in alert.labels}
    more = f" (and {len(names) - 1} other alerts)" if len(names) > 1 else ""
    spread = f" of {len(nodes)} nodes" if len(nodes) > 1 else ""
    return f"{text.clean(names[0])}{more} at {len(parts)} parts{spread}"


def causes_text(incident: Incident) -> str:
    """Return the numbered list under *Likely causes*; empty for incidents that are their own cause."""
    if not incident.wants_diagnosis:
        return ""
    if incident.diagnosis is None:
        return "*Likely causes*\n_looking for evidence_" if incident.firing else ""
    causes = incident.diagnosis.causes[:MAX_CAUSES]
    room = (CAUSES - 1000) // max(len(causes), 1)
    lines = [f"{index}. {text.mrkdwn(cause_line(cause), room)}" for index, cause in enumerate(causes, start=1)]
    if seen := [text.mrkdwn(_seen_line(cause), 300) for cause in incident.diagnosis.seen[:MAX_SEEN]]:
        lines.append("_Seen, but not convincing:_ " + "; ".join(seen))
    if shape := _shape_line(incident):
        lines.append(shape)
    missing = [text.mrkdwn(note, 200) for note in incident.diagnosis.missing[:3]]
    if missing:
        lines.append("_Missing evidence:_ " + "; ".join(missing))
    return "*Likely causes*\n" + text.join_lines(lines, CAUSES)


def _shape_line(incident: Incident) -> str:
    """Describe the curve; empty if it resembles no known trouble."""
    shape = incident.diagnosis.shape if incident.diagnosis is not None else None
    if shape is None or not shape.is_known:
        return ""
    also = f"; also {text.mrkdwn(shape.also, FIELD)}" if shape.also else ""
    return f"_MFU curve:_ {text.mrkdwn(shape.said, FIELD)}{shape.confidence_note}{also}"


def _seen_line(cause: Cause) -> str:
    """Return a cause of low confidence in one line, with what speaks against it, else its evidence."""
    why = "; ".join(cause.against[:2]) or "; ".join(cause.evidence[:2]) or "too little"
    return f"{cause.part}: {cause.cause} ({why})"


def _lost(incident: Incident, before: str = "") -> str:
    """Return `12 GPU-hours lost` after the words in `before`; empty while the cost is negligible."""
    cost = incident.diagnosis.cost if incident.diagnosis is not None else None
    if cost is None or cost.gpu_hours < 0.005:
        return ""
    episodes = f" in {len(incident.episodes) + 1} episodes" if incident.episodes else ""
    return f"{before}{text.amount(cost.gpu_hours)} GPU-hours lost{episodes}{' so far' if incident.firing else ''}"


def cause_line(cause: Cause) -> str:
    """Return one cause as text: part, reason, evidence, and what speaks against it."""
    line = f"{cause.part}: {cause.cause}" if cause.cause else cause.part
    if cause.confidence == "medium":
        line += " (not certain)"
    if cause.evidence:
        line += f"; {', '.join(cause.evidence)}"
    return f"{line}. Against: {', '.join(cause.against)}" if cause.against else line


def sign(incident: Incident) -> str:
    """Return the state as one coloured character, readable in a list of channels and in a terminal."""
    if not incident.firing:
        return "\u2705"
    return {"critical": "\U0001f534", "warning": "\U0001f7e0"}.get(incident.severity, "\U0001f535")


def _summary(incident: Incident, style: Style) -> str:
    """Return the accessible `text`: all that matters, for notifications, screen readers and plain clients."""
    lines = [text.escape(headline(incident)), _what(incident)]
    lines += [_facts(incident), _origin(incident), causes_text(incident)]
    lines += [_flaps(incident), _what_to_do(incident, style), members_text(incident)]
    if style.notice:
        lines.append(f"[{text.mrkdwn(style.notice, 75)}]")
    return "\n".join(line for line in lines if line)


def _facts(incident: Incident) -> str:
    """Return the fields as one line: `run llama-70b, cluster c1, critical, since 2026-11-21 03:12:05 UTC`, ..."""
    rows = [("run", incident.newest().labels.get("run", "")), ("cluster", incident.cluster), ("", incident.severity)]
    facts = [f"{name} {text.mrkdwn(value, FIELD)}".strip() for name, value in rows if text.clean(value)]
    facts += [f"since {text.utc(incident.started_at)}", _lost(incident)]
    if incident.resolved_at is not None:
        facts.append(f"resolved after {text.duration(_lasted(incident))}")
    acknowledged = f"acknowledged by {text.mrkdwn(incident.acknowledged, 100)}" if incident.acknowledged else ""
    return ", ".join(piece for piece in (*facts, text.mrkdwn(incident.note, FIELD), acknowledged) if piece)


def _fallback_summary(incident: Incident) -> str:
    where = f" (run {text.clean(incident.run)})" if incident.run else ""
    return f"{text.clean(incident.alertname)}{where}" or "unnamed alert"


def _what(incident: Incident) -> str:
    """Return the measurement: for many parts a count by alert and the latest, for a resolved incident the last."""
    measured = text.mrkdwn(incident.newest().annotations.get("description", ""), PARAGRAPH - 300)
    if _is_domain(incident):
        counts = Counter(alert.name for alert in incident.members if alert.firing == incident.firing)
        tally = ", ".join(f"{count} {name}" for name, count in counts.most_common(5))
        measured = text.mrkdwn(tally, 250) + (f"; the latest: {measured}" if measured else "")
    return f"While it fired: {measured}" if measured and not incident.firing else measured


def _is_domain(incident: Incident) -> bool:
    """Return whether it has several parts with a common domain and no run."""
    return bool(incident.domain) and not incident.run


def _fields(incident: Incident) -> Block:
    labels = incident.newest().labels
    rows = [
        ("Run", labels.get("run", "")),
        ("Part", incident.domain if _is_domain(incident) else part_of(labels)),
        ("Cluster", incident.cluster),
        ("Severity", incident.severity),
    ]
    fields = [_mrkdwn(f"*{name}*\n{text.mrkdwn(value, FIELD)}") for name, value in rows if text.clean(value)]
    fields.append(_mrkdwn(f"*Since*\n{text.slack_time(incident.started_at, '{date_short_pretty} {time_secs}')}"))
    if lost := _lost(incident):
        fields.append(_mrkdwn(f"*Cost*\n{lost}"))
    if incident.resolved_at is not None:
        ended = text.slack_time(incident.resolved_at, "{date_short_pretty} {time_secs}")
        fields.append(_mrkdwn(f"*Resolved*\n{ended} after {text.duration(_lasted(incident))}"))
    return {"type": "section", "fields": fields}


def _origin(incident: Incident) -> str:
    """Return where the reader may have seen it before."""
    if incident.parted_at is None:
        return ""
    run = text.mrkdwn(incident.parted_run, FIELD)
    return f"_Part of the incident of run {run} until {text.clock_utc(incident.parted_at)}: the run does not use it._"


def build_pointer(incident: Incident, into: Incident | None, style: Style) -> Message:
    """Build what remains of the message of an absorbed incident, naming the one that absorbed it."""
    alert = incident.newest()
    about = "another incident" if into is None else text.mrkdwn(_about(into), FIELD)
    summary = text.plain(alert.annotations.get("summary", ""), 100) or _fallback_summary(incident)
    content = f"\u21aa {text.mrkdwn(summary, 120)}: now part of the message about {about}"
    if style.notice:
        content += f" [{text.mrkdwn(style.notice, 75)}]"
    return Message(content, [{"type": "section", "text": _mrkdwn(content)}])


def _about(incident: Incident) -> str:
    """Return `run llama-70b`, `switch leaf-12`, `GpuLost at many parts` or `gpu-042 GPU 3`, which never change."""
    if incident.run:
        return f"run {incident.run}"
    if incident.domain == NO_SINGLE_PART:
        return f"{incident.alertname} at many parts"
    return incident.domain or part_of(incident.newest().labels) or incident.alertname


def _flaps(incident: Incident) -> str:
    if not incident.episodes:
        return ""
    lasted = [text.duration(end - start) for start, end in incident.episodes[-5:]]
    return f"*Flapping*\nfired {_times(incident)}; earlier it lasted {', '.join(lasted)}"


def _times(incident: Incident) -> str:
    first = incident.episodes[0][0] if incident.episodes else incident.started_at
    return f"{len(incident.episodes) + 1} times in {text.duration(incident.started_at - first)}"


def _what_to_do(incident: Incident, style: Style) -> str:
    annotations = incident.newest().annotations
    runbook = annotations.get("runbook", "") or annotations.get("runbook_url", "")
    if not text.clean(runbook):
        return ""
    url = runbook_url(runbook, style.runbook_url)
    link = f"<{url}|Runbook: {text.mrkdwn(incident.alertname, 100)}>" if url else text.mrkdwn(runbook, FIELD)
    return f"*What to do*\n{link}"


def _links(incident: Incident, style: Style) -> list[str]:
    links = [*board_links(incident, style.grafana_url), *log_links(incident, style.grafana_url, style.logs)]
    if prometheus := prometheus_link(incident, style.prometheus_url):
        links.append(("Prometheus", prometheus))
    if alertmanager := alertmanager_link(incident, style.alertmanager_url):
        links.append(("Alertmanager", alertmanager))
    links += tracker_links(incident)  # last, as a run may name several
    shown = [f"<{url}|{name}>" for name, url in links]
    while shown and (len(shown) > MAX_LINKS or sum(map(text.units, shown)) > LINKS):
        shown.pop()
    return shown


def _footer(incident: Incident, style: Style) -> list[str]:
    notice = f"*{text.mrkdwn(style.notice, 75)}*" if style.notice else ""
    diagnosed = f"diagnosed {text.slack_time(incident.diagnosis.at)}" if incident.diagnosis is not None else ""
    note = text.mrkdwn(incident.note, FIELD)
    acknowledged = f"acknowledged by {text.mrkdwn(incident.acknowledged, 100)}" if incident.acknowledged else ""
    names = text.mrkdwn(incident.alertname, 100)
    return [piece for piece in (notice, names, diagnosed, note, acknowledged) if piece]


def _lasted(incident: Incident) -> float:
    return (incident.resolved_at or incident.started_at) - incident.started_at


def _header(incident: Incident) -> Block:
    return {"type": "header", "text": {"type": "plain_text", "text": headline(incident), "emoji": True}}


def _chart(incident: Incident, style: Style, *, native: bool) -> Block | None:
    """Return the run's MFU as Slack's own chart, else as its picture."""
    curve = incident.diagnosis.curve if incident.diagnosis is not None else None
    if style.charts == "off":
        return None
    if native and style.charts == "auto":
        return chart_block(curve, incident.run) if curve is not None else None
    if not incident.picture:
        return None
    alt_text = text.plain(f"Chart: {headline(incident)}", 500)
    return {"type": "image", "slack_file": {"id": incident.picture}, "alt_text": alt_text}


def _section(content: str) -> Block | None:
    return {"type": "section", "text": _mrkdwn(content)} if content else None


def _context(elements: Sequence[str]) -> Block | None:
    return {"type": "context", "elements": [_mrkdwn(element) for element in elements]} if elements else None


def _mrkdwn(content: str) -> Block:
    return {"type": "mrkdwn", "text": content, "verbatim": True}
