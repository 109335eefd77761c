"""Compare the readings with the needs of the alert rules, and list problems and notes for the operator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyrometer_exporters.commands.doctor.failures import NOT_IN_MIG
from pyrometer_exporters.commands.doctor.faults import has_no_gpus
from pyrometer_exporters.commands.doctor.peak import peak_notes
from pyrometer_exporters.commands.doctor.readings import Readings, is_divided
from pyrometer_exporters.commands.doctor.report import GpuStatus, Report


@dataclass(frozen=True)
class Need:
    """A family, with one value of its ``reason`` label where that matters, and the alerts that depend on it."""

    family: str
    alerts: str
    reason: str = ""

    @property
    def name(self) -> str:
        """The selector of the series in PromQL."""
        return f'{self.family}{{reason="{self.reason}"}}' if self.reason else self.family


_SECONDS = "pyrometer_gpu_clock_event_seconds_total"

NEEDS = (
    Need(_SECONDS, "GpuThrottledThermal", "hw_thermal"),
    Need(_SECONDS, "GpuThrottledThermal", "sw_thermal"),
    Need(_SECONDS, "GpuThrottledPowerBrake", "hw_power_brake"),
    Need(_SECONDS, "GpuThrottledHardware", "hw_slowdown"),
    Need(_SECONDS, "GpuPowerCapOutlier", "power_cap"),
    Need("DCGM_FI_DEV_SM_CLOCK", "GpuClockOutlier and the text of throttling alerts"),
    Need("DCGM_FI_DEV_GPU_TEMP", "the text of throttling alerts"),
    Need("DCGM_FI_DEV_GPU_UTIL", "GpuPowerCapOutlier, GpuClockOutlier and GpuPcieDegraded"),
    Need("DCGM_FI_DEV_PCIE_LINK_WIDTH", "GpuPcieDegraded"),
    Need("DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH", "GpuPcieDegraded"),
    Need("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "GpuEccUncorrected"),
    Need("DCGM_FI_DEV_ROW_REMAP_FAILURE", "GpuRowRemapFailed"),
    Need("pyrometer_gpu_xid_critical_errors_total", "GpuXidCritical"),
    Need("pyrometer_gpu_xid_errors_total", "the text of GpuXidCritical"),
)


# Boards before Ampere retire pages instead of rows, and have DCGM's fields for those.
_NEWER_THAN_PAGES = "DCGM_FI_DEV_ROW_REMAP_FAILURE"


def problems(report: Report, readings: Readings) -> list[str]:
    """List what the alert rules need of the GPUs and lack."""
    return list(_of_needs(report, readings))


NEXT = "; next: "
"""Separates a problem from what to do next, where that is known."""
_LOG_STEPS = {
    "no_permission": f"{NEXT}run as root, or give the exporter CAP_SYSLOG",
    "no_kernel_log": f"{NEXT}pass /dev/kmsg to --path.kmsg, or a file of its records; a syslog is none",
    "enoent": f"{NEXT}in a container, mount /dev/kmsg; elsewhere see --path.kmsg",
}


def log_problems(report: Report) -> list[str]:
    """List what the alert rules need of the kernel log and lack."""
    why = [collector.down["kmsg"] for collector in report.collectors if "kmsg" in collector.down]
    if not why:
        return []
    needed = "SXids and Xids of lost GPUs stay unseen, which NvswitchFatalError and GpuXidCritical need"
    return [f"the kernel's log can't be read ({why[0]}): {needed}{_LOG_STEPS.get(why[0], '')}"]


def notes(report: Report, readings: Readings) -> list[str]:
    """List what an operator should know although no alert depends on it."""
    lines = []
    if has_no_gpus(report):
        lines.append("no NVIDIA GPU on the PCI bus and no driver: this node has no GPUs")
    if report.attribution.cgroups != "readable":
        lines.append(f"cgroups of other processes can't be read ({report.attribution.cgroups}): no job_info")
    if hidden := report.attribution.processes.get("hidden"):
        lines.append(f"{hidden} processes on GPUs can't be seen from here: run in the host's PID namespace")
    on_bus, presented = report.present.get("pci"), report.present.get("nvml")
    if on_bus is not None and presented is not None and on_bus != presented:
        lines.append(f"the PCI bus has {on_bus} GPUs, the driver lists {presented}")
    if divided := [gpu.gpu for gpu in report.gpus if is_divided(readings, gpu.gpu)]:
        lacking = "no utilisation of the whole GPU, so GpuPowerCapOutlier and GpuClockOutlier ignore it"
        lines.append(f"GPU {', '.join(divided)}: divided (MIG), {lacking}")
    if sampled := [gpu.gpu for gpu in report.gpus if gpu.clock_events.get("hw_thermal") == "sampled"]:
        lines.append(
            f"GPU {', '.join(sampled)}: throttling times for heat and power brake are sampled, because driver "
            f"{report.driver['driver']} "
            "has no counters for them, or none with a known field number (575 to 580.65, 580.82 and newer have)"
        )
    return [*lines, *peak_notes(report, readings)]


def _of_needs(report: Report, readings: Readings) -> Iterator[str]:
    for need in NEEDS:
        without = [gpu for gpu in report.gpus if not gpu.down and not _is_met(readings, gpu, need)]
        if without:
            why = next((absent.why for absent in without[0].absent if absent.metric == need.family), "")
            numbers = ", ".join(gpu.gpu for gpu in without)
            yield f"GPU {numbers}: no {need.name}, needed by {need.alerts}{f': {why}' if why else ''}"


def _is_met(readings: Readings, gpu: GpuStatus, need: Need) -> bool:
    if need.family in NOT_IN_MIG and is_divided(readings, gpu.gpu):
        return True  # the rules know
    if need.family == _NEWER_THAN_PAGES and readings.of("DCGM_FI_DEV_RETIRED_PENDING", gpu=gpu.gpu):
        return True
    labels = {"gpu": gpu.gpu, "reason": need.reason} if need.reason else {"gpu": gpu.gpu}
    return bool(readings.of(need.family, **labels))
