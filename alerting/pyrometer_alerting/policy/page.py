"""The page of the policy: its mode and limits, what it holds back, and what was done to which node."""

from __future__ import annotations

import html
from collections.abc import Sequence

from pyrometer_alerting.model.text import duration, utc
from pyrometer_alerting.policy.worker import PolicyWorker
from pyrometer_alerting.render.document import document
from pyrometer_alerting.state.actions import Action

_HEAD = ("when", "action", "state", "cluster", "node", "rule", "reason", "by", "detail")


def policy_page(worker: PolicyWorker, actions: Sequence[Action], now: float) -> str:
    """Return the whole page, which reloads itself every 15 s."""
    policy = worker.executor.policy
    limits = policy.limits
    state = f"mode {policy.mode}" if policy.rules else "no policy"
    looked = f"{duration(now - worker.looked_at)} ago" if worker.looked_at else "never"
    lines = [
        f"At most {limits.per_hour} nodes an hour and {limits.percent:g} % of a partition; {limits.keep} stay in each.",
        f"Prometheus and every scheduler last answered: {looked}.",
        *(
            f"Held back in {cluster}: {count} by the limit {limit}."
            for (cluster, limit), count in sorted(worker.held.items())
        ),
    ]
    trouble = "".join(f'<p class="trouble">{html.escape(line)}</p>' for line in worker.trouble)
    body = (
        f'<header><h1>Policy</h1><span class="state calm">{html.escape(state)}</span><a href="./">Incidents</a>'
        f"<time>{utc(now)}</time></header>{trouble}<main>"
        + "".join(f"<p>{html.escape(line)}</p>" for line in lines)
        + (_table(actions) if actions else '<p class="empty">Nothing was done yet.</p>')
        + "</main>"
    )
    return document("policy", body, reload_seconds=15)


def _table(actions: Sequence[Action]) -> str:
    head = "".join(f"<th>{name}</th>" for name in _HEAD)
    return f"<table><tr>{head}</tr>{''.join(map(_row, actions))}</table>"


def _row(action: Action) -> str:
    cells = (
        utc(action.began_at or action.planned_at), action.kind, action.state, action.cluster, action.node, action.rule,
        action.reason, action.by_whom, action.detail,
    )  # fmt: skip
    return "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>"
