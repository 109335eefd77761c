"""Compose an incident's message for one channel: what it may show, who is mentioned, which buttons it has.

A message that Slack refuses is degraded step by step; whether the workspace has chart blocks is remembered.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from pyrometer_alerting.channel.blocks import CHARTS, NATIVE_CHART, TEXT_BYTES, Style
from pyrometer_alerting.channel.evidence import build_evidence, has_evidence
from pyrometer_alerting.channel.messages import DEGRADE_LEVELS, WITHOUT_CHART, build, build_pointer, pages
from pyrometer_alerting.incidents.storage.actions import ASK_RETURN, Action
from pyrometer_alerting.incidents.storage.operation import Operation
from pyrometer_alerting.incidents.storage.store import Store, Transaction
from pyrometer_alerting.model import text
from pyrometer_alerting.model.incident import Incident
from pyrometer_alerting.model.message import Message
from pyrometer_alerting.model.routing import Routing

# Action ids of the buttons. A button's value is only the incident's id: all of a message can be read by its readers.
ACKNOWLEDGE, SILENCE_1H, SILENCE_4H = "pyrometer_acknowledge", "pyrometer_silence_1h", "pyrometer_silence_4h"
UNSILENCE, SHOW_NODE, DRAIN = "pyrometer_unsilence", "pyrometer_node", "pyrometer_drain"
JUDGE_RIGHT, JUDGE_WRONG = "pyrometer_judge_right", "pyrometer_judge_wrong"
CONFIRM_DRAIN, CONFIRM_RETURN = "pyrometer_policy_drain", "pyrometer_policy_return"
OPEN_BOARD = "pyrometer_open"


class Composer:
    """Composes messages; `routing` is replaced on reload, `buttons` is set when somebody handles clicks."""

    def __init__(self, style: Style) -> None:
        self._style = style
        self.routing = Routing()
        self.buttons = False

    def builder(
        self,
        incident: Incident,
        into: Incident | None,
        operation: Operation,
        target: str,
        *,
        native: bool,
        asked: Sequence[Action] = (),
    ) -> Callable[[int], Message]:
        """Return a function from the degrade level to the message that is posted in `target` or edited in place.

        For the operation of the evidence it is that of the thread's first reply. `into` is the incident that absorbed
        this one, `asked` what the policy would do about it if somebody agreed.
        """
        if into is not None:
            pointer = build_pointer(self.routing.redacted(incident), self.routing.redacted(into), self._style)
            return lambda _level: pointer
        where = operation.target if operation.ts is not None else target
        visible = self.routing.redacted(_placed(incident, where))
        if operation.is_evidence:
            return lambda level: self._evidence(visible, level, native=native)
        return lambda level: self._card(visible, incident, level, asked)

    def _card(self, visible: Incident, incident: Incident, level: int, asked: Sequence[Action]) -> Message:
        has_buttons = self.buttons and level <= WITHOUT_CHART
        message = build(visible, self._style, level, linked=not has_buttons)
        # The message that it was split from has mentioned everybody already.
        message = message if incident.parted_at is not None else self.routing.with_mentions(message, incident)
        if not has_buttons:
            return message
        named = self.routing.rules(incident.channel).shows("node")
        elements = [question_button(action, named=named) for action in asked[:1] if incident.firing]
        elements += [_link_button(number, *link) for number, link in enumerate(pages(visible, self._style))]
        shown = _card_buttons(incident) if incident.firing else []
        shown += [] if has_evidence(incident) else _evidence_buttons(incident)
        elements += _buttons(incident, shown)
        actions = [{"type": "actions", "elements": elements}] if elements else []
        return Message(message.text, [*message.blocks, *actions])

    def _evidence(self, visible: Incident, level: int, *, native: bool) -> Message:
        message = build_evidence(visible, self._style, level, native=native)
        shown = _evidence_buttons(visible) if self.buttons and level <= WITHOUT_CHART else []
        actions = [{"type": "actions", "elements": _buttons(visible, shown)}] if shown else []
        return Message(message.text, [*message.blocks, *actions])


def _placed(incident: Incident, where: str) -> Incident:
    """Add a note to the incident if its own channel could not take it."""
    if not incident.channel or where in ("", incident.channel):
        return incident
    return replace(incident, note="; ".join(filter(None, (incident.note, f"not possible in {incident.channel}"))))


def _card_buttons(incident: Incident) -> list[tuple[str, str]]:
    silenced = incident.note.startswith("silenced")
    buttons = [
        (ACKNOWLEDGE, "Acknowledge", not incident.acknowledged),
        (SILENCE_1H, "Silence 1 h", not silenced),
        (SILENCE_4H, "Silence 4 h", not silenced),
        (UNSILENCE, "End silence", silenced),
    ]
    return [(action, label) for action, label, is_shown in buttons if is_shown]


def _evidence_buttons(incident: Incident) -> list[tuple[str, str]]:
    """Return the buttons below the evidence; a resolved incident keeps the judgement, often known after the repair."""
    has_node = any("node" in alert.labels for alert in incident.members) or incident.diagnosis is not None
    names_cause = incident.diagnosis is not None and incident.diagnosis.names_cause
    buttons = [
        (JUDGE_RIGHT, "Culprit right", names_cause),
        (JUDGE_WRONG, "Culprit wrong", names_cause),
        (SHOW_NODE, "Show node", has_node and incident.firing),
        (DRAIN, "Drain command", has_node and incident.firing),
    ]
    return [(action, label) for action, label, is_shown in buttons if is_shown]


def _buttons(incident: Incident, buttons: Iterable[tuple[str, str]]) -> list[dict[str, Any]]:
    return [
        {
            "type": "button",
            "action_id": action,
            "value": incident.id,
            "text": {"type": "plain_text", "text": label, "emoji": True},
        }
        for action, label in buttons
    ]


def _link_button(number: int, name: str, url: str) -> dict[str, Any]:
    """Return a button that opens a page; Slack passes on the click too, and nothing is done then."""
    shown = {"type": "plain_text", "text": name, "emoji": True}
    return {"type": "button", "action_id": f"{OPEN_BOARD}_{number}", "url": text.unescape(url), "text": shown}


def question_button(action: Action, *, named: bool) -> dict[str, Any]:
    """Return the button of a question of the policy, with Slack's own question before it acts; its value is its id.

    `named`: whether the channel may show the node's name.
    """
    is_return = action.kind == ASK_RETURN
    label = "Put back" if is_return else "Drain"
    question = f"{label}: {text.plain(action.node, 100) if named else 'the node'}?"
    confirm = {
        "title": {"type": "plain_text", "text": label},
        "text": {"type": "plain_text", "text": question},
        "confirm": {"type": "plain_text", "text": label},
        "deny": {"type": "plain_text", "text": "Cancel"},
    }
    return {
        "type": "button",
        "action_id": CONFIRM_RETURN if is_return else CONFIRM_DRAIN,
        "value": action.id,
        "text": {"type": "plain_text", "text": label, "emoji": True},
        "style": "primary",
        "confirm": confirm,
    }


_log = logging.getLogger(__name__)

CHARTS_FACT = "charts_refused_at"
CHARTS_RETRY_SECONDS = 7 * 86_400.0  # Slack enables features workspace by workspace


def has_native_charts(tx: Transaction, now: float) -> bool:
    """Return whether Slack's chart block may be used: it was not refused within a week."""
    refused = tx.fact(CHARTS_FACT)
    return refused is None or now - float(refused) > CHARTS_RETRY_SECONDS


def has_native_charts_enabled(tx: Transaction, charts: str, now: float) -> bool:
    """Return whether Slack draws the charts, by the setting and by the workspace's refusals."""
    return charts == "auto" and has_native_charts(tx, now)


def record_chart_refusal(store: Store, op_id: str, now: float) -> None:
    """Record that Slack rejected the chart but accepted the message without it; pictures are used from now on."""
    _log.info("outbox: this workspace has no chart blocks: sending charts as pictures")
    with store.transaction() as tx:
        tx.save_fact(CHARTS_FACT, repr(now))
        tx.outbox.restore(op_id)


def degraded(level: int, build: Callable[[int], Message]) -> tuple[int, Message]:
    """Return the message at this level, or at the next one that differs: never the refused content."""
    message = build(level)
    while 0 < level < DEGRADE_LEVELS - 1 and message == build(level - 1):
        level += 1
        message = build(level)
    return level, message


def stored_message(body: str, *, native: bool) -> Callable[[int], Message]:
    """Return a stored message or reply by level: whole (without unsupported charts), without charts, as plain text."""
    stored = json.loads(body)
    content, blocks = str(stored.get("text", "")), list(stored.get("blocks", []))
    left_out = [(), CHARTS] if native else [(NATIVE_CHART,), CHARTS]

    def at(level: int) -> Message:
        shown = [b for b in blocks if b["type"] not in left_out[level]] if level <= WITHOUT_CHART else []
        return Message(text.fit(content, TEXT_BYTES[level]), shown, bool(stored.get("broadcast")))

    return at
