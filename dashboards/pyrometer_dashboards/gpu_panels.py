"""Panels of one GPU over time: clocks, power, temperatures, memory, traffic and errors."""

from __future__ import annotations

from pyrometer_dashboards import palette, panels
from pyrometer_dashboards.common import NODE_IS
from pyrometer_dashboards.model import Panel, Query, Reading

GPU_IS = f'{NODE_IS}, gpu="$index"'
ANSWERS = f"pyrometer_gpu_up{{{GPU_IS}}} == 1"


def _max(name: str) -> str:
    return f"max({name}{{{GPU_IS}}})"


def _rate(name: str, by: str = "") -> str:
    return f"max by ({by}) (rate({name}{{{GPU_IS}}}[$__rate_interval]))"


def clocks() -> Panel:
    """Return the clocks of the GPU, and the highest that it can have."""
    return panels.lines(
        "Clocks",
        Reading(
            "Clocks of the streaming multiprocessors and of the memory, and the highest SM clock of the board.",
            "SM clock at its maximum, or at the power cap just below; memory constant.",
            "Compare the reasons beside it.",
            "GpuClockOutlier",
        ),
        [
            Query(_max("DCGM_FI_DEV_SM_CLOCK"), "SM"),
            Query(_max("DCGM_FI_DEV_MAX_SM_CLOCK"), "SM, maximum"),
            Query(_max("DCGM_FI_DEV_MEM_CLOCK"), "memory"),
        ],
        unit="rotmhz",
        limits=(0, None),
        overrides=[
            panels.fixed("SM", palette.BAND, lineWidth=2),
            panels.fixed("SM, maximum", palette.NO_DATA, lineStyle={"fill": "dash"}),
            panels.fixed("memory", palette.BESIDE),
        ],
    )


def throttling() -> Panel:
    """Return the share of the time under each reason that slows clocks."""
    return panels.stacked(
        "Throttled, by reason",
        Reading(
            "Seconds per second for which each reason held the clocks, from the driver's counters or our sampler: "
            "nothing between two scrapes is missed.",
            "only power_cap, which is normal at full load.",
            "hw_thermal, sw_thermal: heat. hw_power_brake: the supply. hw_slowdown: hardware.",
            "GpuThrottledThermal",
        ),
        Query(f"gpu:pyrometer_gpu_clock_event_seconds:rate1m{{{GPU_IS}}}", "{{reason}}"),
        unit="percentunit",
        limits=(0, 1),
        watched=ANSWERS,
        overrides=panels.reasons(),
    )


def power() -> Panel:
    """Return the power that the GPU draws, and its limit."""
    return panels.lines(
        "Power and its limit",
        Reading(
            "Power that the GPU draws, and the lowest limit in force.",
            "near the limit under full load.",
            "A limit below that of its neighbours: somebody, or the node, has lowered it.",
            "GpuLimitLowered",
        ),
        [
            Query(_max("DCGM_FI_DEV_POWER_USAGE"), "draws"),
            Query(_max("DCGM_FI_DEV_ENFORCED_POWER_LIMIT"), "limit"),
        ],
        unit="watt",
        limits=(0, None),
        overrides=[
            panels.fixed("draws", palette.BAND, lineWidth=2),
            panels.fixed("limit", palette.NO_DATA, lineStyle={"fill": "dash"}),
        ],
    )


def temperatures() -> Panel:
    """Return the temperatures of die and memory, and how far the die is from slowing down."""
    return panels.lines(
        "Temperatures, and what is left",
        Reading(
            "Temperature of the die and of the memory, and how many degrees are left until the GPU slows down.",
            "die below 80 °C, more than 10 °C left.",
            "The neighbours too: the node's air. This GPU alone: its cold plate or heat sink.",
            "GpuThermalMarginGone",
        ),
        [
            Query(_max("DCGM_FI_DEV_GPU_TEMP"), "die"),
            Query(_max("DCGM_FI_DEV_MEMORY_TEMP"), "memory"),
            Query(_max("DCGM_FI_DEV_GPU_TEMP_LIMIT"), "left"),
        ],
        unit="celsius",
        overrides=[
            panels.fixed("die", palette.BAND, lineWidth=2),
            panels.fixed("memory", palette.BESIDE),
            panels.fixed("left", palette.NO_DATA, lineStyle={"fill": "dash"}),
        ],
    )


def memory() -> Panel:
    """Return how much of the GPU's memory is used."""
    return panels.lines(
        "Memory used",
        Reading(
            "Used frame buffer, and its size.",
            "constant while a job trains.",
            "A slope: the job leaks. Full: fragmentation, the next allocation fails.",
        ),
        [
            Query(f"1048576 * {_max('DCGM_FI_DEV_FB_USED')}", "used"),
            Query(f"1048576 * {_max('DCGM_FI_DEV_FB_TOTAL')}", "size"),
        ],
        unit="bytes",
        limits=(0, None),
        overrides=[
            panels.fixed("used", palette.BAND, lineWidth=2, fillOpacity=18),
            panels.fixed("size", palette.NO_DATA, lineStyle={"fill": "dash"}),
        ],
    )


def activity() -> Panel:
    """Return what the GPU does: multiprocessors, tensor cores, memory."""
    return panels.lines(
        "How busy it is",
        Reading(
            "Share of the time in which the multiprocessors had work, the tensor cores worked, and the memory was read "
            "or written.",
            "constant; tensor cores at a third to a half while a job trains.",
            "SM busy, tensor cores idle: it waits in a collective, or the job does other work.",
        ),
        [
            Query(_max("DCGM_FI_PROF_SM_ACTIVE"), "SM"),
            Query(_max("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"), "tensor cores"),
            Query(_max("DCGM_FI_PROF_DRAM_ACTIVE"), "memory"),
        ],
        unit="percentunit",
        limits=(0, 1),
        overrides=[
            panels.fixed("SM", palette.BAND),
            panels.fixed("tensor cores", palette.PARTS["gc"], lineWidth=2),
            panels.fixed("memory", palette.BESIDE),
        ],
    )


def traffic() -> Panel:
    """Return the bytes over NVLink and PCIe."""
    return panels.lines(
        "Traffic over NVLink and PCIe",
        Reading(
            "Bytes per second over all NVLinks and over PCIe, sent and received.",
            "NVLink far above PCIe; both as its neighbours.",
            "PCIe high: data loading or offloading. NVLink 0 under load: is a link down?",
            "NvlinkDown",
        ),
        [
            Query(_rate("pyrometer_gpu_nvlink_transmitted_bytes_total"), "NVLink sent"),
            Query(_rate("pyrometer_gpu_nvlink_received_bytes_total"), "NVLink received"),
            Query(_rate("pyrometer_gpu_pcie_transmitted_bytes_total"), "PCIe sent"),
            Query(_rate("pyrometer_gpu_pcie_received_bytes_total"), "PCIe received"),
        ],
        unit="Bps",
        limits=(0, None),
        overrides=[
            panels.fixed("NVLink sent", palette.BAND),
            panels.fixed("NVLink received", palette.REFERENCE),
            panels.fixed("PCIe sent", palette.PARTS["gc"]),
            panels.fixed("PCIe received", palette.PARTS["checkpoint"]),
        ],
    )


def link_errors() -> Panel:
    """Return the errors of NVLinks and of the PCIe link."""
    return panels.bars(
        "Link errors",
        Reading(
            "Errors of the GPU's NVLinks by link and kind, and PCIe packets that were sent again, per interval.",
            "none; a few PCIe replays a day are normal.",
            "One NVLink: its bridge or the switch port. PCIe: reseat the board or its riser.",
            "GpuPcieDegraded",
        ),
        [
            panels.counted(
                f"pyrometer_gpu_nvlink_link_errors_total{{{GPU_IS}}}", "NVLink {{link}} {{error}}", "link, error"
            ),
            panels.counted(f"DCGM_FI_DEV_PCIE_REPLAY_COUNTER{{{GPU_IS}}}", "PCIe replays", "gpu"),
        ],
        unit="locale",
        decimals=0,
        watched=ANSWERS,
    )


def memory_errors() -> Panel:
    """Return the memory errors and remapped rows of the GPU's life."""
    return panels.table(
        "Memory errors and rows, of its life",
        Reading(
            "Uncorrected and corrected memory errors, rows remapped for them, rows that wait for a reset, and those "
            "that could not be remapped.",
            "0; a few remapped rows are normal wear.",
            "Pending: reset the GPU. Failed: replace it.",
            "GpuRowRemapFailed",
        ),
        " or ".join(_named(name, what) for name, what in _MEMORY_ERRORS.items()),
        {"what": "what", "Value": "count"},
        unit="locale",
        steps=[(None, palette.QUIET), (1, palette.WATCH), (100, palette.BAD)],
        sort="count",
        fields={"count": panels.coloured() | {"custom.width": 90}},
    )


_MEMORY_ERRORS = {
    "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL": "uncorrected errors",
    "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL": "corrected errors",
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": "rows remapped, uncorrected",
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": "rows remapped, corrected",
    "DCGM_FI_DEV_ROW_REMAP_PENDING": "rows that wait for a reset",
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": "rows that can't be remapped",
}


def _named(name: str, what: str) -> str:
    return f'label_replace(max(last_over_time({name}{{{GPU_IS}}}[5m])), "what", "{what}", "", "")'
