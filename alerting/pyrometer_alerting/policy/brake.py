"""The brake: one fault that begins on many nodes within a quarter of an hour has a common cause, and drains none.

Nodes count over the whole cluster and over all clusters, however small these or their partitions are: those that
Prometheus has seen with the fault, and those whose schedulers say that somebody of us has drained them for it.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyrometer_alerting.policy.findings import COMMON_SECONDS, Look, Topic
from pyrometer_alerting.policy.schedulers import NodeState, word

# As the Slurm scripts do (compose/slurm/health.sh).
_NODES, _SHARE = 3, 0.02

States = Mapping[str, NodeState]
Affected = dict[str, set[str]]
"""Nodes by their clusters."""


def affected(topic: Topic, since: float, look: Look, states: Mapping[str, States]) -> Affected:
    """Return the nodes on which the fault began within 15 minutes of `since` (Unix seconds)."""
    found: Affected = {}
    for run in look.runs.get(topic, ()):
        if abs(run.since - since) <= COMMON_SECONDS:
            found.setdefault(run.cluster, set()).add(run.node)
    name = word(topic.name)
    for cluster, nodes in states.items():
        for state in nodes.values():
            claim = state.claim
            if claim is not None and name in claim.topics and abs(claim.since - since) <= COMMON_SECONDS:
                found.setdefault(cluster, set()).add(state.name)
    return found


def is_common(nodes: Affected, states: Mapping[str, States]) -> bool:
    """Return whether these are more than 3 nodes, or 2 % where that is more, of a cluster or of all."""
    sizes = {cluster: len(states.get(cluster, ())) for cluster in nodes}
    everywhere = sum(map(len, states.values()))
    return any(len(nodes[cluster]) > _most(size) for cluster, size in sizes.items()) or (
        sum(map(len, nodes.values())) > _most(everywhere)
    )


def still_common(topic: Topic, look: Look, states: Mapping[str, States]) -> Affected:
    """Return the nodes with a common cause that has not ended; empty if there is none."""
    for since in sorted({run.since for run in look.runs.get(topic, ()) if not run.ended}):
        nodes = affected(topic, since, look, states)
        if is_common(nodes, states):
            return nodes
    return {}


def _most(count: int) -> float:
    return max(_NODES, _SHARE * count)
