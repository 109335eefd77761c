"""What the alert rules can't do without: absent on a GPU that answers, an alert can never fire there."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Need:
    """A family, where it matters with one value of its ``reason`` label, and the alerts that live on it."""

    family: str
    alerts: str
    reason: str = ""

    @property
    def name(self) -> str:
        """As one would ask Prometheus for it."""
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
