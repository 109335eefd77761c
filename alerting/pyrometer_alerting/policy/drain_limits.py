"""How many nodes may be taken out of service: so many in an hour, so many percent of a partition, never the last."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from pyrometer_alerting.policy.rules import Limits
from pyrometer_alerting.policy.schedulers import NodeState

HOUR_SECONDS = 3600.0
PER_HOUR, PERCENT, KEEP, UNKNOWN_NODE = "per_hour", "percent", "keep", "unknown_node"


def holding(limits: Limits, states: Mapping[str, NodeState], node: str, taken: Collection[str], begun: int) -> str:
    """Return the limit that holds a node back; empty if it may be taken out of service.

    Args:
        limits: those of the policy.
        states: what the scheduler says of all nodes.
        node: the node in question.
        taken: nodes that are just being taken out: they count as gone, whatever the scheduler says.
        begun: how many nodes of the cluster were taken out in the last hour.
    """
    state = states.get(node)
    if state is None:
        return UNKNOWN_NODE
    if begun >= limits.per_hour:
        return PER_HOUR
    for pool in state.pools or ("",):
        members = [each for each in states.values() if pool in each.pools or not pool]
        gone = {each.name for each in members if not each.in_service or each.name in taken} | {node}
        if len(members) - len(gone) < limits.keep:
            return KEEP
        # One at least, or a pool of four could not spare any: `keep` holds there.
        if len(gone) > max(1, math.floor(len(members) * limits.percent / 100)):
            return PERCENT
    return ""
