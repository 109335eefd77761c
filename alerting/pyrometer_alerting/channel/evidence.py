"""The evidence: the first reply of an incident's thread, edited in place as the card is. It pings nobody.

It has what the card has no room for: each sentence of each cause, the curve, all alerts, what was examined, the links.
"""

from __future__ import annotations

from pyrometer_alerting.channel.blocks import CHARTS, FIELD, PARAGRAPH, TEXT_BYTES, Style, context, section
from pyrometer_alerting.channel.card import SURE, headline, measured, words
from pyrometer_alerting.channel.chart_block import chart_block
from pyrometer_alerting.channel.members import members_text
from pyrometer_alerting.model import text
from pyrometer_alerting.model.incident import Cause, Incident
from pyrometer_alerting.model.links import (
    alertmanager_link,
    board_links,
    log_links,
    prometheus_link,
    tracker_links,
)
from pyrometer_alerting.model.message import Block, Message

MAX_CAUSES, MAX_SEEN = 5, 2
COMPLETE_SECONDS = 10.0  # from a run's card to the complete diagnosis, which takes some, and its picture
CAUSES = 2800
CARD_WORDS = 24  # of an alert's own description have room on the card
MAX_LINKS, LINKS = 10, 1800  # elements that a context block may have, and their characters


def has_evidence(incident: Incident) -> bool:
    """Return whether there is anything beyond the card; a run's incident has it once it was looked into."""
    if incident.joined_into:
        return False
    several = len(incident.members) > 1 or incident.truncated > 0
    if incident.diagnosis is not None or several or incident.parted_at is not None:
        return True
    return words(measured(incident)) > CARD_WORDS


def evidence_wait(incident: Incident) -> float:
    """Return for how many seconds the first evidence waits: a run's, for the complete diagnosis and its picture."""
    return COMPLETE_SECONDS if incident.wants_diagnosis and incident.firing else 0.0


def build_evidence(incident: Incident, style: Style, degrade: int = 0, *, native: bool = True) -> Message:
    """Build the incident's present evidence; a higher `degrade` leaves more out.

    Where the workspace has no chart block (`native` is False) the chart is a picture, once there is one.
    """
    texts = [section(line) for line in _texts(incident)]
    links, footer = context(_links(incident, style)), context(_footer(incident))
    blocks = [block for block in (*texts, _chart(incident, style, native=native), links, footer) if block is not None]
    if degrade >= 1:
        blocks = [block for block in blocks if block["type"] not in CHARTS]
    if degrade >= 2:
        blocks = [block for block in blocks if block["type"] == "section"]
    return Message(text.fit(evidence_text(incident), TEXT_BYTES[degrade]), [] if degrade >= 3 else blocks)


def evidence_text(incident: Incident) -> str:
    """Return the evidence as lines of mrkdwn, without links."""
    return "\n".join(filter(None, [*_texts(incident), ", ".join(_footer(incident))]))


def _texts(incident: Incident) -> tuple[str, ...]:
    alert = measured(incident)
    return (
        f"_When the alert fired:_ {alert}" if alert and incident.firing and incident.diagnosis is not None else alert,
        _origin(incident),
        causes_text(incident),
        members_text(incident),
        _flaps(incident),
    )


def causes_text(incident: Incident) -> str:
    """Return all causes with their evidence; empty for incidents that are their own cause."""
    if not incident.wants_diagnosis:
        return ""
    if incident.diagnosis is None:
        return "_looking for evidence_" if incident.firing else ""
    causes = incident.diagnosis.causes[:MAX_CAUSES]
    room = (CAUSES - 1000) // max(len(causes), 1)
    lines = [line for index, cause in enumerate(causes, 1) for line in _cause_lines(index, cause, room)]
    if seen := [text.mrkdwn(_seen_line(cause), 300) for cause in incident.diagnosis.seen[:MAX_SEEN]]:
        lines.append("_Seen, but not convincing:_ " + "; ".join(seen))
    if incident.diagnosis.revision:
        lines.append(f"_Revised:_ {revised(incident.diagnosis.revision)}")
    if shape := _shape_line(incident):
        lines.append(shape)
    missing = [text.mrkdwn(note, 200) for note in incident.diagnosis.missing[:3]]
    if missing:
        lines.append("_Missing evidence:_ " + "; ".join(missing))
    return "*Evidence*\n" + text.join_lines(lines, CAUSES)


def _cause_lines(index: int, cause: Cause, room: int) -> list[str]:
    """Return a cause and each sentence for and against it on a line of its own."""
    sure = f" ({SURE[cause.confidence]})" if cause.confidence in SURE else ""
    named = f"{cause.part}: {cause.cause}" if cause.cause else cause.part
    lines = [f"{index}. {text.mrkdwn(named, 300)}{sure}"]
    for mark, sentences in (("\u2022", cause.evidence), ("\u2022 against:", cause.against)):
        for sentence in sentences:
            room -= text.units(sentence) + 12
            if room > 0:
                lines.append(f"{mark} {text.mrkdwn(sentence, 400)}")
    return lines


def revised(revision: str) -> str:
    """Return why the first cause was replaced, with the part that was blamed before struck through."""
    before, gone, why = text.mrkdwn(revision, PARAGRAPH).partition(" is no longer named first")
    return f"~{before}~{gone}{why}" if gone else before


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


def cause_line(cause: Cause) -> str:
    """Return one cause as text: part, reason, evidence, and what speaks against it."""
    line = f"{cause.part}: {cause.cause}" if cause.cause else cause.part
    line += f" ({SURE[cause.confidence]})" if cause.confidence in SURE else ""
    if cause.evidence:
        line += f"; {', '.join(cause.evidence)}"
    return f"{line}. Against: {', '.join(cause.against)}" if cause.against else line


def _origin(incident: Incident) -> str:
    """Return where the reader may have seen it before."""
    if incident.parted_at is None:
        return ""
    run = text.mrkdwn(incident.parted_run, FIELD)
    return f"_Part of the incident of run {run} until {text.clock_utc(incident.parted_at)}: the run does not use it._"


def _flaps(incident: Incident) -> str:
    if not incident.episodes:
        return ""
    spans = [text.duration(end - start) for start, end in incident.episodes[-5:]]
    return f"_Earlier it lasted_ {', '.join(spans)}"


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


def _footer(incident: Incident) -> list[str]:
    diagnosed = f"diagnosed {text.slack_time(incident.diagnosis.at)}" if incident.diagnosis is not None else ""
    names = text.mrkdwn(incident.alertname, 100)
    cluster = f"cluster {text.mrkdwn(incident.cluster, 100)}" if text.clean(incident.cluster) else ""
    return [piece for piece in (names, cluster, text.mrkdwn(incident.severity, 20), diagnosed) if piece]


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
