"""The page of the policy: its mode and limits, what it holds back, and what was done to which node."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from urllib.parse import quote

from pyrometer_alerting.channel.document import document
from pyrometer_alerting.incidents.storage.actions import (
    ASK,
    ASK_RETURN,
    ASKED,
    COMMON,
    DOING,
    DONE,
    DRAIN,
    REFUSED,
    UNKNOWN,
    Action,
)
from pyrometer_alerting.model.text import duration, utc
from pyrometer_alerting.policy.executor import what_and_link
from pyrometer_alerting.policy.worker import PolicyWorker

_HEAD = ("When", "Node", "What", "Why", "Rule", "By")
_COLOURS = {DONE: "calm", DOING: "warm", ASKED: "warm", REFUSED: "hot", UNKNOWN: "hot"}
_SAID = {
    (ASK, ASKED): "asked whether to drain", (ASK_RETURN, ASKED): "asked whether to return",
    (COMMON, ASKED): "a common cause: not drained, decide yourself",
}  # fmt: skip


def policy_page(worker: PolicyWorker, actions: Sequence[Action], now: float) -> str:
    """Return the whole page, which reloads itself every 15 s."""
    policy = worker.executor.policy
    limits = policy.limits
    state = f"mode {policy.mode}" if policy.rules else "no policy"
    dry = policy.rules and not policy.is_on
    colour = "calm" if policy.is_on else "idle"
    looked = f"{duration(now - worker.looked_at)} ago" if worker.looked_at else "never"
    lines = [
        *(("Dry run: decisions are made and recorded, but not carried out.",) if dry else ()),
        f"At most {limits.per_hour} nodes an hour and {limits.percent:g} % of a partition; {limits.keep} stay in each.",
        f"Prometheus and every scheduler last answered: {looked}.",
        *(
            f"Held back in {cluster}: {count} by the limit {limit}."
            for (cluster, limit), count in sorted(worker.held.items())
        ),
    ]
    trouble = "".join(f'<p class="trouble">{html.escape(line[:1].upper() + line[1:])}</p>' for line in worker.trouble)
    body = (
        f'<header><h1>Policy</h1><span class="state {colour}">{html.escape(state)}</span><a href="./">Incidents</a>'
        f"<time>{utc(now)}</time></header>{trouble}<main>"
        + "".join(f"<p>{html.escape(line)}</p>" for line in lines)
        + (_table(actions, worker.returns.waits) if actions else '<p class="empty">Nothing was done yet.</p>')
        + "</main>"
    )
    return document("policy", body, reload_seconds=15, body_class="policy")


def _table(actions: Sequence[Action], waits: Mapping[tuple[str, str], str]) -> str:
    head = "".join(f"<th>{name}</th>" for name in _HEAD)
    rows = "".join(_row(action, waits.get((action.cluster, action.node), "")) for action in actions)
    return f"<table><tr>{head}</tr>{rows}</table>"


def _row(action: Action, waits_for: str) -> str:
    said = _SAID.get((action.kind, action.state), f"{action.kind}: {action.state}")
    reason, link = what_and_link(action)
    incident = f' <a href="./#{quote(action.incident_id)}">incident</a>' if link else ""
    is_held = (action.kind, action.state) == (DRAIN, DONE)
    detail = f"It waits for: {waits_for}" if is_held and waits_for else action.detail
    cells = (
        f"<time>{utc(action.began_at or action.planned_at)}</time>",
        f"<b>{html.escape(action.node or 'many nodes')}</b><small>{html.escape(action.cluster)}</small>",
        f'<span class="state {_COLOURS.get(action.state, "idle")}">{html.escape(said.replace("_", " "))}</span>',
        f"{html.escape(reason)}{incident}<small>{html.escape(detail)}</small>",
        html.escape(action.rule),
        html.escape(action.by_whom),
    )
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
