"""Builders of messages share this: an installation's style, Slack's limits, and its blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyrometer_alerting.model.message import Block

FIELD, PARAGRAPH = 300, 900
NATIVE_CHART = "data_visualization"
CHARTS = (NATIVE_CHART, "image")
# By level: 0 everything, 1 without chart, 2 without context, 3 plain text only, 4 the headline alone. Each is shorter:
# an edit takes 4,000 bytes of `text` as sent (docs.slack.dev/reference/methods/chat.update, msg_too_long).
TEXT_BYTES = (3900, 3000, 2000, 1000, 600)


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
    scheduler: str = "slurm"  # whose command takes a node out of service: slurm, kubernetes or none


def section(content: str) -> Block | None:
    """Return a paragraph; None without content."""
    return {"type": "section", "text": mrkdwn(content)} if content else None


def context(elements: Sequence[str]) -> Block | None:
    """Return a line of small print; None without elements."""
    return {"type": "context", "elements": [mrkdwn(element) for element in elements]} if elements else None


def mrkdwn(content: str) -> Block:
    """Return a text object in which Slack makes no links and no mentions of its own."""
    return {"type": "mrkdwn", "text": content, "verbatim": True}
