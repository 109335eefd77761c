"""The modal that shows what a silence would mute, and asks why."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pyrometer_alerting.channel import payloads
from pyrometer_alerting.channel.silences import Preview, alert_lines
from pyrometer_alerting.model import text
from pyrometer_alerting.model.incident import Incident

SILENCE_CALLBACK = "pyrometer_silence"
_REASON = "reason"


def silence_view(incident: Incident, hours: int, channel: str, previews: Sequence[Preview]) -> dict[str, Any]:
    """Build the modal: the matchers, what they mute now, and a field for the reason."""
    lines = []
    for preview in previews:
        lines.append(f"*{text.mrkdwn(preview.matchers_text(), 600)}*")
        mutes = alert_lines(preview.mutes, 10)
        lines += [f"\u2022 {text.mrkdwn(each, 150)}" for each in mutes] or ["\u2022 no alert that is firing now"]
    total = sum(len(preview.mutes) for preview in previews)
    alerts = f"{total} alert{'s' if total != 1 else ''}"
    head = f"For {hours} h, {alerts} firing now, and all others with these labels, will be silenced:"
    metadata = {"incident": incident.id, "hours": hours, "channel": channel}
    return {
        "type": "modal",
        "callback_id": SILENCE_CALLBACK,
        "title": {"type": "plain_text", "text": f"Silence for {hours} h"},
        "submit": {"type": "plain_text", "text": "Silence"},
        "close": {"type": "plain_text", "text": "Cancel"},
        "private_metadata": json.dumps(metadata),
        "blocks": [
            {
                "type": "section",
                "text": {"type": "mrkdwn", "text": text.join_lines([head, *lines], 2900), "verbatim": True},
            },
            {
                "type": "input",
                "block_id": _REASON,
                "optional": True,
                "label": {"type": "plain_text", "text": "Why"},
                "element": {"type": "plain_text_input", "action_id": _REASON, "max_length": 200},
            },
        ],
    }


def silence_reason(view: Mapping[str, Any]) -> str:
    """Return the reason that was written into the modal, in one line."""
    return text.plain(payloads.written(view, _REASON), 200)
