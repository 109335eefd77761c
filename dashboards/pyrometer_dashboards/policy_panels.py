"""Panels of the policy: whether it looks, what it holds back, what it did, and who is out of service for it."""

from __future__ import annotations

from pyrometer_dashboards import palette, panels
from pyrometer_dashboards.common import CLUSTER, NODE_OF_ROW
from pyrometer_dashboards.model import Panel, Reading
from pyrometer_dashboards.proof import Healthy

_NO_POLICY = "no data: no policy"
_MODE = f"max by (instance, mode) (pyrometer_policy_mode_info{{{CLUSTER}}})"
_LOOKED = f"max by (instance) (pyrometer_policy_last_look_timestamp_seconds{{{CLUSTER}}})"
_LOOKS = f"{_LOOKED} > time() - 180"


def looks() -> Panel:
    """Return the mode of the policy, and how long ago it last looked."""
    return panels.table(
        "Policy: mode and last look",
        Reading(
            "Whether the policy acts (on) or only says what it would do (dry-run), and how long ago Prometheus and "
            "every scheduler last answered it.",
            "below a minute.",
            "Nothing is drained while it does not look. Its page is /policy of the alerting service.",
            "PolicyNotLooking",
        ),
        f"max by (mode) (time() - {_LOOKED} * on (instance) group_right () {_MODE})",
        {"mode": "mode", "Value": "looked"},
        unit="s",
        decimals=0,
        steps=[(None, palette.QUIET), (60, palette.WATCH), (180, palette.WORST)],
        fields={"looked": panels.coloured()},
        no_value=_NO_POLICY,
    )


def held_back() -> Panel:
    """Return how many nodes each limit holds back now."""
    return panels.table(
        "Held back by a limit",
        Reading(
            "Nodes that a rule of the policy is about now, and that stay in service as a limit is reached: nodes an "
            "hour, percent of a partition, nodes to keep.",
            "'none'.",
            "Many at once: one cause, such as a switch or an upgrade. Look at the incidents before a limit is raised.",
            "PolicyNotLooking",
        ),
        f"max by (limit) (pyrometer_policy_nodes_held_back{{{CLUSTER}}}) > 0",
        {"limit": "limit", "Value": "nodes"},
        unit="locale",
        sort="nodes",
        steps=[(None, palette.QUIET), (1, palette.WATCH)],
        fields={"nodes": panels.coloured()},
        no_value=_NO_POLICY,
        healthy=Healthy("none", _LOOKS),
    )


def done() -> Panel:
    """Return what the policy did in the range, by result."""
    counted = f"sum by (action, result) (increase(pyrometer_policy_actions_total{{{CLUSTER}}}[$__range]))"
    return panels.table(
        "Policy's actions in the range",
        Reading(
            "What the policy did to nodes in the time range, and with which result; would is a dry run.",
            "a few done or would, no refused.",
            "refused and unknown: the scheduler's own words are on /policy and in the audit trail.",
            "PolicyNotLooking",
        ),
        f"round({counted}) > 0",
        {"action": "action", "result": "result", "Value": "times"},
        unit="locale",
        sort="times",
        no_value=_NO_POLICY,
        healthy=Healthy("none", _LOOKS),
    )


def drained() -> Panel:
    """Return the nodes that are out of service for the policy, by which rule and since when."""
    since = f"pyrometer_policy_node_since_timestamp_seconds{{{CLUSTER}}}"
    return panels.table(
        "Out of service for the policy",
        Reading(
            "Nodes that the policy took out of service and that have not come back, by the rule, and since when.",
            "'none'.",
            "A node comes back after the tests that the policy names have passed (docs/policy.md).",
            "NodeTestFailed",
        ),
        f"1000 * max by (node, rule) ({since})",
        {"node": "node", "rule": "rule", "Value": "since"},
        unit="dateTimeAsIso",
        sort="since",
        link=NODE_OF_ROW,
        fields={"since": {"custom.width": 165}},
        no_value=_NO_POLICY,
        healthy=Healthy("none", _LOOKS),
    )
