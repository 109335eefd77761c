"""Panels of a node's events: Xids, the kernel's log, unreadable parts."""

from __future__ import annotations

from pyrometer_dashboards import palette, panels, proof
from pyrometer_dashboards.common import NODE_IS
from pyrometer_dashboards.detail_links import HOST, gpu_of_this_node, leading_to
from pyrometer_dashboards.model import Panel, Reading
from pyrometer_dashboards.proof import Healthy

_GPU_IS = f'{NODE_IS}, gpu=~"$gpu"'


def gpus() -> Panel:
    """Return how many GPUs of the node don't answer, and which one."""
    missing = f"gpu:pyrometer_gpu_up:missing{{{NODE_IS}}}"
    first = f'label_replace(bottomk(1, {missing}), "who", "GPU $1", "gpu", "(.+)")'
    several = f'label_replace(count({missing}) > 1, "who", "GPUs", "", "")'
    none = f'label_replace(0 * count(gpu:pyrometer_gpu:expected{{{NODE_IS}}}), "who", "of its GPUs", "", "")'
    return panels.stat(
        "GPUs missing",
        Reading(
            "GPUs that this node should have and that don't answer: how many, and which if it is one.",
            "0.",
            "Drain the node: a GPU fell off the bus, or hangs. The table below has its address and serial number.",
            "GpuLost",
        ),
        f"{several} or on () 0 * {first} + 1 or on () {none}",
        unit="locale",
        steps=[(None, palette.QUIET), (1, palette.WORST)],
        name="{{who}}",
        span=6,
    )


def missing() -> Panel:
    """Return which GPUs of the node don't answer, with their serial numbers."""
    lost = f"group by (gpu) (gpu:pyrometer_gpu_up:missing{{{NODE_IS}}})"
    # As the GPU was when it was last opened.
    known = f"max by (gpu, pci_bus_id, serial) (last_over_time(pyrometer_gpu_info{{{NODE_IS}}}[$__range]))"
    why = (
        f"max by (gpu, reason) (label_replace(node:pyrometer_down_reason:info{{{NODE_IS}, "
        'collector="gpu"}, "gpu", "$1", "part", "(.+)")) '
        f"and on (gpu) {lost}"
    )
    named = f"0 * topk by (gpu) (1, {known}) + 1 and on (gpu) {lost} or on (gpu) {lost}"
    return panels.table(
        "GPUs that don't answer",
        Reading(
            "Each GPU of this node that should answer and doesn't: its number, PCI address and serial number as it "
            "said them before, and why it can't be read.",
            "'none missing'.",
            "Drain the node and reset it; the board with this serial number goes back if it is lost again.",
            "GpuLost",
        ),
        [named, why],
        {
            "gpu": "GPU",
            "pci_bus_id": "PCI address",
            "serial": "serial",
            "reason": "why",
            "Value #A": "state",
            "Value #B": "known",
        },
        fields={
            "GPU": leading_to(gpu_of_this_node("GPU"), **{"custom.width": 50}),
            "PCI address": {"custom.width": 110},
            "state": {"mappings": [panels.state("1", "missing", palette.WORST, 2)], "custom.width": 100},
            "known": panels.HIDDEN,
        },
        healthy=Healthy("none missing", f"gpu:pyrometer_gpu:expected{{{NODE_IS}}}"),
    )


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
        f"sum by (gpu, xid, class) (increase(pyrometer_gpu_xid_errors_total{{{_GPU_IS}}}[$__range])) > 0",
        {"gpu": "gpu", "xid": "xid", "class": "class", "Value": "count"},
        unit="locale",
        decimals=0,
        sort="count",
        fields={"gpu": leading_to(gpu_of_this_node("gpu"))},
        no_value="no data: the kernel's log is not read here",
        healthy=Healthy("none reported", f"increase({proof.XIDS_OF_NODE}[$__rate_interval]) and on () {proof.NODE}"),
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
        panels.counted(f"pyrometer_kernel_events_total{{{NODE_IS}}}", "{{kind}}"),
        unit="locale",
        decimals=0,
        links=[HOST],
        watched=f"increase(pyrometer_kernel_events_total{{{NODE_IS}}}[$__rate_interval]) and on () {proof.NODE}",
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
        f"node:pyrometer_down_reason:info{{{NODE_IS}}}",
        {"collector": "collector", "part": "part", "reason": "reason", "Value": "unread"},
        fields={"unread": {"mappings": [panels.state("1", "yes", palette.BAD, 2)], "custom.width": 80}},
        healthy=Healthy("nothing reported", f"pyrometer_collector_success{{{NODE_IS}}}"),
    )
