"""Nodes and spares: which nodes are out of service, why and since when, and which spare is fit to replace one."""

from __future__ import annotations

from pyrometer_dashboards import alert_panels, palette, panels, proof
from pyrometer_dashboards.common import (
    CLUSTER,
    CLUSTERS,
    NODE_IS,
    NODE_OF_ROW,
    NODE_OF_SERIES,
    NODES,
    NODES_AND_SPARES,
    PARTS_OF_ROW,
    fired,
    gpu_of_this_node,
    leading_to,
)
from pyrometer_dashboards.grafana_defaults import NO_DATA_MAPPING
from pyrometer_dashboards.model import Annotation, Board, Panel, Query, Reading, Row
from pyrometer_dashboards.proof import Healthy

_STATE = f"node:pyrometer_node:state{{{CLUSTER}}}"
_OUT = f"node:pyrometer_node:out{{{CLUSTER}}}"
_IDLE = f"node:pyrometer_gpu:idle{{{CLUSTER}}}"
# The states of a node, by their number in node:pyrometer_node:state.
_STATES = (
    ("fit", palette.QUIET),
    ("test overdue", palette.WATCH),
    ("test failed", palette.BAD),
    ("check failed", palette.BAD),
    ("on purpose", palette.WATCH),
    ("silent", palette.WORST),
)
_WORDS = [panels.state(str(at), name, colour, at + 1) for at, (name, colour) in enumerate(_STATES)]
_RUNBOOK = ("Open the runbook", "${alerting:raw}/runbooks/${__data.fields.of}")
_HERE = Annotation("Alerts", fired(NODE_IS), "{{alertname}}", "{{node}}", palette.BAD, at_value=True)


def board() -> Board:
    """Return the board as data."""
    return Board(
        uid=NODES_AND_SPARES,
        title="Pyrometer / Nodes and spares",
        question="Which nodes are out of service, why and since when, and which spare is fit to replace one?",
        needs="the node exporter on each node, and the cluster exporter",
        tags=["hardware", "on-call"],
        time_from="now-24h",
        variables=[CLUSTERS, NODES],
        annotations=[_HERE],
        rows=[
            Row(panels.tiles(_in_service(), _fit_spares(), _unfit(), _on_purpose()), height=3),
            Row([_out(), _spares()], height=12),
            Row([_history(), _tests()], height=10),
            Row([_parts(), _alerts()]),
            Row(panels.tiles(_policy_looks(), _held_back()), height=6),
            Row(panels.tiles(_policy_did(), _drained()), height=6),
        ],
    )


def _in_service() -> Panel:
    return panels.stat(
        "Nodes in service",
        Reading(
            "Nodes that answer and that nobody took out of service, of all that are known.",
            "100 %.",
            "The table below has the others, why and since when.",
            "NodeExporterDown",
        ),
        f"count({_STATE} < 4) / count({_STATE})",
        unit="percentunit",
        decimals=1,
        steps=[(None, palette.WORST), (0.95, palette.BAD), (0.99, palette.WATCH), (0.9999, palette.QUIET)],
    )


def _fit_spares() -> Panel:
    return panels.stat(
        "Fit spares",
        Reading(
            "Nodes without work that answer, pass their checks and tests, and that nobody took out of service.",
            "at least one in a hundred nodes.",
            "0: repair the first of the table on the left before the next node fails.",
            "NodeCheckFailed",
        ),
        f"count({_STATE} == 0 and on (node) {_IDLE}) or on () 0 * count(cluster:pyrometer_gpu_up:count{{{CLUSTER}}})",
        unit="locale",
        steps=[(None, palette.BAD), (1, palette.QUIET)],
    )


def _unfit() -> Panel:
    return panels.stat(
        "Unfit nodes",
        Reading(
            "Nodes that answer and of which a check fails now, or an active test failed when it last ran.",
            "0.",
            "Drain those that work before they cost the run: the table has the part.",
            "NodeCheckFailed",
        ),
        f"count({_STATE} == 2 or {_STATE} == 3) or on () 0 * max(cluster:pyrometer_check_ok:count{{{CLUSTER}}} > 0 "
        f"and on () {proof.NODES})",
        unit="locale",
        steps=[(None, palette.QUIET), (1, palette.BAD)],
    )


def _on_purpose() -> Panel:
    return panels.stat(
        "Out on purpose",
        Reading(
            "Nodes that Slurm drains, that are in maintenance by their own file, or cordoned in Kubernetes: "
            "no rule pages for those that are drained or in maintenance.",
            "few, and none for weeks.",
            "The oldest first: was it forgotten?",
            "NodeInMaintenance",
        ),
        f"count({_STATE} == 4) or on () 0 * max({proof.NODES})",
        unit="locale",
        steps=[(None, palette.QUIET), (1, palette.WATCH)],
    )


def _out() -> Panel:
    states = ("exporter down", "down", "drained", "draining", "maintenance", "cordoned", "test failed", "check failed")
    colours = {
        "exporter down": palette.WORST,
        "down": palette.WORST,
        "test failed": palette.BAD,
        "check failed": palette.BAD,
    }
    shown = [panels.state(name, name, colours.get(name, palette.WATCH), at + 2) for at, name in enumerate(states)]
    since = f"node:pyrometer_node_out:since{{{CLUSTER}}}"
    return panels.table(
        "Out of service or unfit, and why",
        Reading(
            "A row for each reason: the exporter is silent, Slurm or Kubernetes gives it no work, maintenance, "
            "a check fails, a test failed or is overdue. Since Slurm's own time or that of the test, else since it was "
            "first seen.",
            "'none out of service'.",
            "Click the state for the runbook, the node for its board. Repaired: repeat the test, then resume it.",
            "NodeCheckFailed",
        ),
        f"time() - max by (node, state, part) ({since}) "
        "* on (node, state, part) group_left (why, user, alert) "
        f"group by (node, state, part, why, user, alert) ({_OUT})",
        {"node": "node", "state": "state", "why": "why", "Value": "for", "user": "by", "alert": "of"},
        unit="s",
        sort="for",
        falling=False,
        fields={
            "node": leading_to(NODE_OF_ROW, PARTS_OF_ROW, **{"custom.width": 85}),
            "state": leading_to(_RUNBOOK, **panels.coloured(), **{"custom.width": 112, "mappings": shown}),
            "why": {"custom.minWidth": 345},
            "for": {"custom.width": 85, "decimals": 1},
            "by": panels.HIDDEN,
            "of": panels.HIDDEN,
        },
        healthy=Healthy("none out of service", proof.NODES),
        span=17,
    )


def _spares() -> Panel:
    return panels.table(
        "Spares without work",
        Reading(
            "Nodes on whose GPUs nobody works, the fit ones first, with the days since their oldest active test.",
            "several fit ones, tested within 8 days.",
            "Take the first row. Before the run restarts on it: pyrometer-test --run nccl,nvbandwidth on it.",
            "NodeTestOverdue",
        ),
        [
            f"max by (node) ({_STATE} and on (node) {_IDLE})",
            f"time() - max by (node) (node:pyrometer_active_test:oldest{{{CLUSTER}}} and on (node) {_IDLE})",
        ],
        {"node": "node", "Value #A": "state", "Value #B": "tested"},
        sort="state",
        falling=False,
        link=NODE_OF_ROW,
        fields={
            "state": panels.coloured() | {"mappings": _WORDS, "custom.width": 110},
            "tested": {"unit": "s", "decimals": 1, "custom.width": 90},
        },
        no_value="no data: is a job known?",
        span=7,
    )


def _history() -> Panel:
    chosen = f"topk(20, max by (node) (max_over_time({_STATE}[$__range] @ end())) > 0)"
    return panels.timeline(
        "Nodes that were not fit in the range",
        Reading(
            "The worst state of each node over time, of the twenty that were worst in the range.",
            "short stripes: a node is back within a day.",
            "A node that comes and goes is not repaired: look at its parts below.",
            "NodeCheckFailed",
        ),
        [Query(f"max by (node) ({_STATE}) and on (node) {chosen}", "{{node}}", step="1m")],
        [NO_DATA_MAPPING, *_WORDS],
        options={"showValue": "never"},
        links=[NODE_OF_SERIES],
        no_value="no data",
        span=14,
    )


def _tests() -> Panel:
    return panels.table(
        "Oldest active tests",
        Reading(
            "The nodes whose oldest active test is longest ago: each node is due for its tests once a week.",
            "below 8 days.",
            "Run pyrometer-test there as soon as it is without work.",
            "NodeTestOverdue",
        ),
        f"topk(12, time() - max by (node) (node:pyrometer_active_test:oldest{{{CLUSTER}}}))",
        {"node": "node", "Value": "tested"},
        unit="s",
        decimals=1,
        steps=[(None, palette.QUIET), (8 * 86400, palette.WATCH), (15 * 86400, palette.BAD)],
        sort="tested",
        link=NODE_OF_ROW,
        fields={"tested": panels.coloured()},
        no_value="no data: no node exports a test",
        span=10,
    )


def _parts() -> Panel:
    # An instant query of a subquery: when each serial was seen first and last, from a sample in 5 minutes.
    seen = f"%s_over_time(timestamp(pyrometer_gpu_info{{{NODE_IS}}})[$__range:5m])"
    return panels.table(
        "Parts of the node: GPUs by serial number",
        Reading(
            "Each GPU that sat in the chosen node within the time range, by serial number, with its firmware, and when "
            "it was seen first and last: two rows for one place are a replacement.",
            "one row for each place, seen last just now.",
            "A new serial with old trouble: it is the place (cable, riser, cooling), not the part.",
            "GpuReplacementDue",
        ),
        [
            f"1000 * min by (gpu, serial, vbios) ({seen % 'min'})",
            f"1000 * max by (gpu, serial, vbios) ({seen % 'max'})",
        ],
        {"gpu": "GPU", "serial": "serial", "vbios": "firmware", "Value #A": "first seen", "Value #B": "last seen"},
        unit="dateTimeAsIso",
        sort="GPU",
        falling=False,
        fields={
            "GPU": leading_to(gpu_of_this_node("GPU"), **{"custom.width": 70}),
            "first seen": {"custom.width": 165},
            "last seen": {"custom.width": 165},
        },
        span=14,
    )


def _alerts() -> Panel:
    return alert_panels.firing(
        "Alerts of nodes", "Node.*|Collector.*|SlurmSilent", {"node": "node"}, runbook="NodeInMaintenance", span=10
    )


_NO_POLICY = "no data: no policy"
_MODE = f"max by (instance, mode) (pyrometer_policy_mode_info{{{CLUSTER}}})"
_LOOKED = f"max by (instance) (pyrometer_policy_last_look_timestamp_seconds{{{CLUSTER}}})"
_LOOKS = f"{_LOOKED} > time() - 180"


def _policy_looks() -> Panel:
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


def _held_back() -> Panel:
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


def _policy_did() -> Panel:
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


def _drained() -> Panel:
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
