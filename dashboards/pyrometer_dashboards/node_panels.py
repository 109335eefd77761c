"""Panels of a node's events: Xids, the kernel's log, unreadable parts."""

from __future__ import annotations

from pyrometer_dashboards import palette, panels, proof
from pyrometer_dashboards.common import NODE_IS
from pyrometer_dashboards.model import Panel, Query, Reading
from pyrometer_dashboards.proof import Healthy

_GPU_IS = f'{NODE_IS}, gpu=~"$gpu"'


def xids() -> Panel:
    """Return the Xids of the node's GPUs."""
    return panels.table(
        "Xids in the range",
        Reading(
            "Errors that the driver reported, each counted once, in the time range.",
            "'none reported'; 13, 31 and 43 are the job's own mistakes.",
            "docs/alerts.md says which mean a reset, a drain or a new board.",
            "GpuXidCritical",
        ),
        [
            Query(
                f"sum by (gpu, xid, class) (increase(pyrometer_gpu_xid_errors_total{{{_GPU_IS}}}[$__range])) > 0",
                instant=True,
                table=True,
            )
        ],
        {"gpu": "gpu", "xid": "xid", "class": "class", "Value": "count"},
        unit="locale",
        decimals=0,
        sort="count",
        no_value="no data: the kernel's log is not read here",
        healthy=Healthy("none reported", f"increase({proof.XIDS_OF_NODE}[$__rate_interval]) and on () {proof.NODE}"),
        span=6,
    )


def kernel() -> Panel:
    """Return the kernel's events on the node."""
    return panels.bars(
        "Events in the kernel's log",
        Reading(
            "What the kernel reported, by kind: out of memory, machine checks, PCIe errors, NVMe, links, lock-ups.",
            "none.",
            "machine_check and pcie_aer: hardware. oom_kill: the job.",
        ),
        [panels.counted(f"pyrometer_kernel_events_total{{{NODE_IS}}}", "{{kind}}")],
        unit="locale",
        decimals=0,
        watched=f"increase(pyrometer_kernel_events_total{{{NODE_IS}}}[$__rate_interval]) and on () {proof.NODE}",
        span=6,
    )


def unread() -> Panel:
    """Return the parts of the node that can't be read."""
    return panels.table(
        "What can't be read here, and why",
        Reading(
            "Collectors of this node that did not run to their end, and GPUs, ports and ranks that can't be read, in "
            "the exporter's own words.",
            "'nothing reported'.",
            "pyrometer-doctor on the node says more.",
            "CollectorFailing",
        ),
        [Query(f"node:pyrometer_down_reason:info{{{NODE_IS}}}", instant=True, table=True)],
        {"collector": "collector", "part": "part", "reason": "reason", "Value": "unread"},
        fields={"unread": {"mappings": [panels.state("1", "yes", palette.BAD, 2)], "custom.width": 80}},
        healthy=Healthy("nothing reported", f"pyrometer_collector_success{{{NODE_IS}}}"),
        span=6,
    )
