"""Texts of the answers to commands and buttons, in Slack's mrkdwn."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pyrometer_alerting.channel.card import headline
from pyrometer_alerting.channel.evidence import causes_text
from pyrometer_alerting.channel.first_steps import drain_command, scheduler_of
from pyrometer_alerting.diagnosis import account
from pyrometer_alerting.incidents.alertmanager import Silence
from pyrometer_alerting.model import text
from pyrometer_alerting.model.incident import Incident, part_of

HELP = "`/pyrometer status` what fires, `/pyrometer muted` what is silenced, `/pyrometer why <run>` why a run is slow"
MOST_LINES = 20


def status(firing: Sequence[Incident], now: float) -> str:
    """List the firing incidents, the worst and oldest first."""
    if not firing:
        return "\u2705 Nothing fires."
    ordered = sorted(firing, key=lambda incident: (incident.severity != "critical", incident.started_at))
    lines = [
        f"{text.escape(headline(incident))} for {text.duration(now - incident.started_at)}{_notes(incident)}"
        for incident in ordered
    ]
    return text.join_lines(lines[:MOST_LINES] + _more(lines), 2900)


def muted(firing: Sequence[Incident], silences: Sequence[Silence], now: float) -> str:
    """List the muted incidents with the reason, and every active silence."""
    lines = [
        f"{text.escape(headline(incident))}: {text.mrkdwn(incident.note, 200)}" for incident in firing if incident.note
    ]
    lines += [
        f"silence by {text.mrkdwn(silence.created_by, 80)} for {text.duration(silence.ends_at - now)} more:"
        f" {text.mrkdwn(silence.comment, 150)}"
        for silence in silences
        if silence.active
    ]
    return text.join_lines(lines[:MOST_LINES] + _more(lines), 2900) if lines else "Nothing is muted."


def why(run: str, incidents: Sequence[Incident], now: float) -> str:
    """Return the causes of a run's newest incident, and the account of them as far as it fits."""
    mine = [incident for incident in incidents if incident.run == run]
    if not mine:
        return f"No incident of run {text.mrkdwn(run, 100)} is known."
    newest = mine[0]
    when = text.duration(now - (newest.started_at if newest.resolved_at is None else newest.resolved_at))
    state = f"fires for {when}" if newest.firing else f"ended {when} ago"
    causes = causes_text(newest) or "*Evidence*\n1. unknown"
    facts = newest.diagnosis.facts if newest.diagnosis is not None else ()
    details = [text.mrkdwn(line, 200) for line in account.lines(newest) if line] if facts else []
    more = (
        [f"*Facts and weights* (`pyrometer-alerting explain {text.mrkdwn(newest.id[:8], 8)}` has all)"] if facts else []
    )
    return text.join_lines([f"{text.escape(headline(newest))} ({state})", causes, *more, *details[1:]], 2900)


def node(incident: Incident, firing: Sequence[Incident], links: Sequence[str], now: float) -> str:
    """Return what else fires on the nodes of an incident."""
    names = nodes_of(incident)
    if not names:
        return "This incident names no node."
    lines = [f"*{text.mrkdwn(name, 100)}*" + _on_node(name, firing, now) for name in names[:5]]
    return text.join_lines([*lines, *links], 2900)


def _on_node(name: str, firing: Sequence[Incident], now: float) -> str:
    lines = [
        f"\n\u2022 {text.mrkdwn(alert.name, 100)} {text.mrkdwn(part_of(alert.labels), 100)}"
        f" for {text.duration(now - alert.starts_at)}"
        for incident in firing
        for alert in incident.members
        if alert.firing and alert.labels.get("node") == name
    ]
    return "".join(lines[:10]) or ": no alert is firing there"


def drain(incident: Incident, scheduler: str) -> str:
    """Return the command that drains the nodes, for people to copy; it is never run from here."""
    reason = re.sub(r"\W+", "_", f"pyrometer {incident.alertname}").strip("_").lower()
    cluster = incident.cluster
    commands = [drain_command(scheduler_of(scheduler, cluster), name, reason) for name in nodes_of(incident)]
    return "\n".join(filter(None, commands[:5])) or "This incident names no node that could be drained."


def nodes_of(incident: Incident) -> list[str]:
    """Return the nodes to blame: those of the diagnosis first, then the members' own."""
    causes = incident.diagnosis.causes if incident.diagnosis is not None else ()
    diagnosed = [cause.labels["node"] for cause in causes if cause.labels and "node" in cause.labels][:1]
    members = [alert.labels["node"] for alert in incident.members if "node" in alert.labels]
    return list(dict.fromkeys([*diagnosed, *members]))


def _notes(incident: Incident) -> str:
    notes = [f"acknowledged by {incident.acknowledged}" if incident.acknowledged else "", incident.note]
    joined = "; ".join(text.mrkdwn(piece, 150) for piece in notes if piece)
    return f" ({joined})" if joined else ""


def _more(lines: Sequence[str]) -> list[str]:
    return [f"and {len(lines) - MOST_LINES} more"] if len(lines) > MOST_LINES else []
