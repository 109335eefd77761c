"""Panels of a node's events: Xids, the kernel's log, unreadable parts."""

from __future__ import annotations

from pyrometer_dashboards import palette, panels, proof
from pyrometer_dashboards.common import HOST, NODE_IS, gpu_of_this_node, leading_to
from pyrometer_dashboards.model import Override, Panel, Query, Reading
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
    last_seen = f"max by (gpu, pci_bus_id, serial) (last_over_time(pyrometer_gpu_info{{{NODE_IS}}}[$__range]))"
    why = (
        f"max by (gpu, reason) (label_replace(node:pyrometer_down_reason:info{{{NODE_IS}, "
        'collector="gpu"}, "gpu", "$1", "part", "(.+)")) '
        f"and on (gpu) {lost}"
    )
    named = f"0 * topk by (gpu) (1, {last_seen}) + 1 and on (gpu) {lost} or on (gpu) {lost}"
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
            "What the kernel reported, by kind: memory, machine checks, PCIe, disks, file systems, network cards.",
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


# A GPU that is split has the whole's memory too, without an instance.
_WHOLE_GPU = f'{_GPU_IS}, GPU_I_ID=""'
_GPU = "GPU {{gpu}}"
_PORT = "{{device}}/{{port}}"
_GPUS = panels.numbered("^GPU %s\\b")
_PORTS = panels.numbered(r"_%s\b")


def _per_gpu(counter: str) -> str:
    return f"sum by (gpu) (rate({counter}{{{_GPU_IS}}}[$__rate_interval]))"


def memory_used() -> Panel:
    """Return the used memory of each GPU."""
    return panels.lines(
        "HBM used",
        Reading(
            "Memory of each GPU that is in use, without what the driver keeps.",
            "the same on all GPUs of a run, with room below the size of the memory (80 GB on an H100).",
            "One that grows over hours: a leak, or caches; the job ends with CUDA out of memory.",
        ),
        Query(f"1048576 * max by (gpu) (DCGM_FI_DEV_FB_USED{{{_WHOLE_GPU}}})", _GPU),
        unit="bytes",
        limits=(0, None),
        overrides=_GPUS,
    )


def memory_temperature() -> Panel:
    """Return the temperature of each GPU's memory."""
    return panels.lines(
        "HBM temperature",
        Reading(
            "Temperature of each GPU's memory; absent where the memory has no sensor.",
            "below 95 °C, and the same on all GPUs.",
            "One above the others: that GPU's cooling. At its limit the GPU slows down (hw_thermal).",
            "GpuThrottledThermal",
        ),
        Query(f"max by (gpu) (DCGM_FI_DEV_MEMORY_TEMP{{{_WHOLE_GPU}}})", _GPU),
        unit="celsius",
        limits=(20, 105),
        overrides=_GPUS,
    )


def energy() -> Panel:
    """Return the energy that the node's GPUs use."""
    return panels.lines(
        "Power of the GPUs, from their energy counters",
        Reading(
            "Energy that each GPU used per second, from its own counter: the mean power between two scrapes, which no "
            "peak escapes.",
            "the same on all GPUs of a run.",
            "A GPU below the others works less, or is capped. The sum over a range is the node's bill.",
        ),
        Query(_per_gpu("pyrometer_gpu_energy_joules_total"), _GPU),
        unit="watt",
        limits=(0, 800),
        overrides=_GPUS,
    )


def nvlink() -> Panel:
    """Return the traffic of each GPU's NVLinks."""
    sent = _per_gpu("pyrometer_gpu_nvlink_transmitted_bytes_total")
    return panels.lines(
        "NVLink, sent by each GPU",
        Reading(
            "Bytes per second that each GPU sends over all of its NVLinks.",
            "the same on all GPUs of a run; NVLink 4 carries 450 GB/s each way.",
            "One below the others: a link is down or retries; see the table of errors.",
            "GpuXidCritical",
        ),
        Query(f"{sent} or max by (gpu) (DCGM_FI_PROF_NVLINK_TX_BYTES{{{_WHOLE_GPU}}})", _GPU),
        unit="Bps",
        limits=(0, None),
        overrides=_GPUS,
    )


def pcie() -> Panel:
    """Return the traffic between GPUs and the host."""
    return panels.lines(
        "PCIe, received by each GPU",
        Reading(
            "Bytes per second that each GPU receives over PCIe: batches, and RDMA of its NIC.",
            "the same on all GPUs of a run; a link of 16 lanes of generation 5 carries 63 GB/s.",
            "At the ceiling: the host feeds too slowly. One lower than the others: its link lost lanes.",
            "GpuPcieDegraded",
        ),
        Query(
            f"{_per_gpu('pyrometer_gpu_pcie_received_bytes_total')} "
            f"or max by (gpu) (DCGM_FI_PROF_PCIE_RX_BYTES{{{_WHOLE_GPU}}})",
            _GPU,
        ),
        unit="Bps",
        limits=(0, None),
        overrides=_GPUS,
    )


def link_errors() -> Panel:
    """Return the errors of NVLinks and of PCIe."""
    counters = ("gpu_nvlink_errors", "gpu_nvlink_link_errors", "gpu_pcie_errors")
    grown = [f"increase(pyrometer_{name}_total{{{_GPU_IS}}}[$__range])" for name in counters]
    asked = " or ".join(
        f'label_replace({expr}, "of", "{name}", "", "")'
        for expr, name in zip(grown, ("NVLink", "NVLink", "PCIe"), strict=True)
    )
    return panels.table(
        "NVLink and PCIe errors",
        Reading(
            "Errors of the GPUs' NVLinks and PCIe links in the time range, by kind.",
            "'none counted', or a few replays.",
            "Recoveries and CRC errors on one link: reseat or replace the GPU's board. PCIe: riser or slot.",
            "GpuXidCritical",
        ),
        f"sum by (gpu, of, error) ({asked}) > 0",
        {"gpu": "gpu", "of": "link", "error": "error", "Value": "count"},
        unit="locale",
        decimals=0,
        sort="count",
        fields={
            "gpu": leading_to(gpu_of_this_node("gpu"), **{"custom.width": 50}),
            "link": {"custom.width": 75},
            "count": {"custom.width": 80},
        },
        healthy=Healthy(
            "none counted",
            " or ".join(f"rate(pyrometer_{name}_total{{{_GPU_IS}}}[$__rate_interval])" for name in counters),
        ),
    )


def roce() -> Panel:
    """Return the RoCE counters of the node's ports."""
    counters = {
        "roce_adp_retransmits": "sent again",
        "out_of_sequence_packets_received": "out of sequence",
        "np_ecn_marked_roce_packets_received": "marked by a switch",
        "rp_cnp_packets_handled": "notifications obeyed",
        "tx_pause_storm_warning_events": "pause storms",
    }
    return panels.lines(
        "RoCE: resent, congestion, pauses",
        Reading(
            "Events per second of all ports: packets that were sent again or came out of sequence (loss), packets that "
            "a switch marked and notifications (CNP) that slowed this node down (congestion), pauses so long that a "
            "storm is near.",
            "nothing sent again; marks come and go with the collectives.",
            "Packets sent again: loss on the way, look at the switch's drops. Pauses: a receiver that hangs.",
            "NicPauseStorm",
        ),
        [
            Query(f"sum(rate(pyrometer_nic_{name}_total{{{NODE_IS}}}[$__rate_interval]))", legend)
            for name, legend in counters.items()
        ],
        unit="cps",
        limits=(0, None),
        colour=panels.BY_WORST,
        steps=[(None, palette.HEALTHY)],
    )


def correction() -> Panel:
    """Return what forward error correction repaired, and what it could not."""
    return panels.lines(
        "Blocks that error correction repaired",
        Reading(
            "Blocks per second that forward error correction repaired on each port; those that it could not have "
            "a line of their own.",
            "repaired ones are normal at 200 Gb/s and more; not repaired: 0.",
            "One port far above the others: clean or replace its cable, before the link flaps.",
            "NicSymbolErrors",
        ),
        [
            Query(f"rate(pyrometer_nic_fec_corrected_blocks_total{{{NODE_IS}}}[$__rate_interval])", _PORT),
            Query(
                f"rate(pyrometer_nic_fec_uncorrectable_blocks_total{{{NODE_IS}}}[$__rate_interval]) > 0",
                f"{_PORT} not repaired",
            ),
        ],
        unit="cps",
        limits=(0, None),
        overrides=[
            *_PORTS,
            Override("/not repaired$/", {"color": {"mode": "fixed", "fixedColor": palette.WORST}}, "byRegexp"),
        ],
    )


def module_temperature() -> Panel:
    """Return the temperature of the ports' adapters and modules."""
    return panels.lines(
        "Temperature of adapters and modules",
        Reading(
            "Temperature of each adapter (asic) and of the module in its port.",
            "below 70 °C for a module.",
            "A hot module flaps: fans, or a cover that is missing beside it.",
            "NicModuleHot",
        ),
        Query(
            f"max by (device, sensor) (pyrometer_nic_temperature_celsius{{{NODE_IS}}})",
            "{{device}} {{sensor}}",
        ),
        unit="celsius",
        limits=(20, 110),
        overrides=_PORTS,
    )
