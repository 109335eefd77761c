"""Panels of Slurm: nodes that get no job and why, and the queue."""

from __future__ import annotations

from pyrometer_dashboards import common, palette, panels
from pyrometer_dashboards.common import CLUSTER, NODE_OF_ROW
from pyrometer_dashboards.model import Panel, Reading
from pyrometer_dashboards.proof import Healthy

_NODE = f'{CLUSTER}, node!=""'
# How long the cluster exporter may be without an answer of Slurm (SlurmSilent).
_ANSWERED = f'pyrometer_slurm_answer_timestamp_seconds{{{CLUSTER}, command="%s"}} > time() - 600'
NO_SLURM = "no data: the cluster exporter's collector slurm has it"


def unavailable(*, span: int = 14) -> Panel:
    """Return the nodes that get no new job, and why."""
    why = f"group by (node, state, reason, user) (pyrometer_slurm_node_unavailable_info{{{_NODE}}})"
    since = f"max by (node) (pyrometer_slurm_node_unavailable_timestamp_seconds{{{_NODE}}})"
    return panels.table(
        "Nodes that get no job, and why",
        Reading(
            "Nodes that Slurm gives no new job (drained, draining, down, maintenance), with the reason that somebody "
            "gave, who did, and since when.",
            "'none', or known repairs.",
            "Repair and resume the oldest: spares run out by nodes that nobody brings back.",
            "NodeInMaintenance",
        ),
        f"time() - ({since} * on (node) group_right () {why}) or 0 * {why}",
        {"node": "node", "state": "state", "reason": "reason", "user": "by", "Value": "for"},
        unit="s",
        decimals=1,
        sort="for",
        link=NODE_OF_ROW,
        fields={
            "node": common.leading_to(*common.NODE_OUT_OF_SERVICE, **{"custom.width": 110}),
            "state": {"custom.width": 90},
            "by": {"custom.width": 80},
            "for": {"custom.width": 85, "mappings": [panels.state("0", "not known", palette.QUIET, 2)]},
        },
        no_value=NO_SLURM,
        healthy=Healthy("none", _ANSWERED % "sinfo"),
        span=span,
    )


def queue(*, span: int = 10) -> Panel:
    """Return the jobs in the queue by partition and state."""
    return panels.table(
        "Jobs in the queue",
        Reading(
            "Jobs of each partition by their state, from squeue.",
            "running ones, and as many waiting as you are used to.",
            "Many wait while nodes are idle: a partition is full, or a limit holds them (squeue says the reason).",
            "SlurmSilent",
        ),
        f"sum by (partition, state) (pyrometer_slurm_jobs{{{CLUSTER}}}) > 0",
        {"partition": "partition", "state": "state", "Value": "jobs"},
        unit="locale",
        sort="jobs",
        fields={"jobs": {"custom.width": 75}},
        no_value=NO_SLURM,
        healthy=Healthy("no open job", _ANSWERED % "squeue"),
        span=span,
    )
