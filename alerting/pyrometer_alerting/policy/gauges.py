"""The policy's metrics: what was done, what a limit holds back, which nodes are out of service for it."""

from __future__ import annotations

from pyrometer_alerting.incidents.metrics import POLICY_ACTIONS, POLICY_HELD, POLICY_LOOKED, POLICY_MODE, POLICY_NODE
from pyrometer_alerting.incidents.storage.actions import Actions
from pyrometer_alerting.model import text
from pyrometer_alerting.policy.worker import PolicyWorker

Gauge = dict[tuple[tuple[str, str], ...], float]
LONGEST_LABEL = 200


def policy_gauges(worker: PolicyWorker, actions: Actions) -> dict[str, Gauge]:
    """Return the metrics by name; none that has no value."""
    policy = worker.executor.policy
    if not policy.rules:
        return {}
    out: Gauge = {
        (
            ("cluster", each.cluster), ("node", each.node), ("rule", each.rule),
            ("reason", text.plain(each.reason, LONGEST_LABEL)),
        ): each.ended_at
        for each in actions.drained()
    }  # fmt: skip
    found: dict[str, Gauge] = {
        POLICY_ACTIONS.name: {
            (("action", kind), ("result", result)): value for (kind, result), value in actions.totals().items()
        },
        POLICY_HELD.name: {
            (("cluster", cluster), ("limit", limit)): float(count) for (cluster, limit), count in worker.held.items()
        },
        POLICY_NODE.name: out,
        POLICY_MODE.name: {(("mode", policy.mode),): 1.0},
        POLICY_LOOKED.name: {(): worker.looked_at} if worker.looked_at else {},
    }
    return {name: gauge for name, gauge in found.items() if gauge}
