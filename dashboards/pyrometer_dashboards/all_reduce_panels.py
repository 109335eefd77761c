"""Panels of what pyrometer-test measured."""

from __future__ import annotations

from pyrometer_dashboards import panels
from pyrometer_dashboards.common import CLUSTER, NODE_OF_ROW
from pyrometer_dashboards.model import Panel, Reading


def all_reduce() -> Panel:
    """Return the lowest all-reduce bandwidths of nodes and of pairs of nodes."""
    return panels.table(
        "All-reduce of idle nodes, lowest",
        Reading(
            "Bus bandwidth that pyrometer-test measured last: within a node (nccl_all_reduce), and with a peer "
            "(nccl_all_reduce_pair), the lowest of each.",
            "all alike, above the least values of docs/active-tests.md.",
            "A node below the others: repeat its test. Slow with one peer alone: the path between the two.",
            "NodeTestFailed",
        ),
        "bottomk by (test) (12, min by (node, peer, test) "
        f'(pyrometer_active_test_result{{{CLUSTER}, test=~"nccl_all_reduce.*"}}))',
        {"node": "node", "peer": "peer", "test": "test", "Value": "GB/s"},
        unit="locale",
        decimals=0,
        sort="GB/s",
        falling=False,
        link=NODE_OF_ROW,
        no_value="no data: no node exports a test",
        span=24,
    )
