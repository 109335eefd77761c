"""The GPU collector's metric families: DCGM's where DCGM has a correct one, else ours.

The ``DCGM_FI_*`` names, units and labels are dcgm-exporter's, so that dashboards and rules made for it work unchanged;
its label for the host is ``Hostname`` up to release 4.8.2 and ``hostname`` after, hence ``--gpu.hostname-label``.
"""

from __future__ import annotations

from pyrometer_exporters.framework.metrics import Families, Family

HOSTNAME_LABEL = "Hostname"
DCGM_LABELS = ("gpu", "UUID", "pci_bus_id", "device", "modelName", HOSTNAME_LABEL, "DCGM_FI_DRIVER_VERSION")
GPU_LABELS = ("gpu", "uuid")

SELDOM_SECONDS = 60.0
SELDOM_HELP = "read at most every 60 s"


class GpuFamilies(Families):
    """Families of one GPU in rows, in the order of their declaration: DCGM's with its labels, ours with GPU_LABELS."""

    def __init__(self) -> None:
        super().__init__(*GPU_LABELS)

    def dcgm_gauge(self, name: str, text: str, *labels: str) -> Family:
        """Declare a gauge of DCGM's; its labels come before its own."""
        return self.add(Family(name, "gauge", text, DCGM_LABELS + labels))

    def dcgm_counter(self, name: str, text: str, *labels: str) -> Family:
        """Declare what DCGM calls a counter; its labels come before its own."""
        return self.add(Family(name, "counter", text, DCGM_LABELS + labels))


def seldom(text: str) -> str:
    """Return the help text of a value of the seldom tier (``field_subject.py``)."""
    return f"{text.removesuffix('.')}; {SELDOM_HELP}."


# fmt: off
_ROWS = GpuFamilies()
SM_CLOCK = _ROWS.dcgm_gauge("DCGM_FI_DEV_SM_CLOCK",
    "Clock of the streaming multiprocessors in MHz, from nvmlDeviceGetClockInfo(NVML_CLOCK_SM).")
MEM_CLOCK = _ROWS.dcgm_gauge("DCGM_FI_DEV_MEM_CLOCK",
    "Clock of the memory in MHz, from nvmlDeviceGetClockInfo(NVML_CLOCK_MEM).")
GPU_TEMP = _ROWS.dcgm_gauge("DCGM_FI_DEV_GPU_TEMP",
    "Temperature of the GPU die in degrees Celsius, from nvmlDeviceGetTemperatureV or nvmlDeviceGetTemperature.")
MEMORY_TEMP = _ROWS.dcgm_gauge("DCGM_FI_DEV_MEMORY_TEMP",
    "Temperature of the memory in degrees Celsius, from NVML field 82; absent where the memory has no sensor.")
POWER_USAGE = _ROWS.dcgm_gauge("DCGM_FI_DEV_POWER_USAGE",
    "Power drawn by the GPU in W, from nvmlDeviceGetPowerUsage: a mean over 1 s on most GPUs since Ampere.")
ENFORCED_POWER_LIMIT = _ROWS.dcgm_gauge("DCGM_FI_DEV_ENFORCED_POWER_LIMIT",
    "Lowest power limit in force in W, from nvmlDeviceGetEnforcedPowerLimit.")
TOTAL_ENERGY = _ROWS.dcgm_counter("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
    "Energy used since the driver was loaded in mJ, from NVML field 83.")
GPU_UTIL = _ROWS.dcgm_gauge("DCGM_FI_DEV_GPU_UTIL",
    "Share of time in which any kernel ran in %, from nvmlDeviceGetUtilizationRates; not how well the GPU was used.")
MEM_COPY_UTIL = _ROWS.dcgm_gauge("DCGM_FI_DEV_MEM_COPY_UTIL",
    "Share of time in which memory was read or written in %, from nvmlDeviceGetUtilizationRates.")
FB_FREE = _ROWS.dcgm_gauge("DCGM_FI_DEV_FB_FREE", "Free frame buffer in MiB, from nvmlDeviceGetMemoryInfo_v2.")
FB_USED = _ROWS.dcgm_gauge("DCGM_FI_DEV_FB_USED",
    "Used frame buffer in MiB, without what is reserved, from nvmlDeviceGetMemoryInfo_v2.")
FB_RESERVED = _ROWS.dcgm_gauge("DCGM_FI_DEV_FB_RESERVED",
    "Frame buffer kept by driver and firmware in MiB, from nvmlDeviceGetMemoryInfo_v2.")
FB_TOTAL = _ROWS.dcgm_gauge("DCGM_FI_DEV_FB_TOTAL", "Size of the frame buffer in MiB, from nvmlDeviceGetMemoryInfo_v2.")
FB_USED_PERCENT = _ROWS.dcgm_gauge("DCGM_FI_DEV_FB_USED_PERCENT",
    "Used share of the frame buffer that isn't reserved, from nvmlDeviceGetMemoryInfo_v2; 0 to 1 in spite of its name.")
CLOCKS_EVENT_REASONS = _ROWS.dcgm_gauge("DCGM_FI_DEV_CLOCKS_EVENT_REASONS",
    "Bitmask of the reasons for the present clocks, from nvmlDeviceGetCurrentClocksEventReasons; "
    "pyrometer_gpu_clock_event_seconds_total misses nothing between two scrapes.")
CLOCK_THROTTLE_REASONS = _ROWS.dcgm_gauge("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS",
    "The same as DCGM_FI_DEV_CLOCKS_EVENT_REASONS, under its older name, by which most rules know it.")

UP = _ROWS.gauge("pyrometer_gpu_up",
    "1 if the GPU answered within its deadline and with plausible values, else 0; pyrometer_down_reason_info has the "
    "reason, and also single calls that failed on a GPU that answers others.")
INFO = _ROWS.gauge("pyrometer_gpu_info",
    "1; the GPU's identity, as reported when it was first opened. pci_bus_id is spelled as the kernel does.",
    "pci_bus_id", "model", "serial", "vbios", "driver")
PRESENT = _ROWS.add(Family("pyrometer_gpus_present", "gauge",
    "NVIDIA GPUs on the PCI bus that are not passed to a virtual machine (source=pci, from sysfs), that the driver "
    "lists (source=nvml) and that the node should have (source=expected, from --collector.gpu.expected).", ("source",)))
ENERGY = _ROWS.counter("pyrometer_gpu_energy_joules_total",
    "Energy used since the driver was loaded in J, from NVML field 83.")
CLOCK_EVENT_SECONDS = _ROWS.counter("pyrometer_gpu_clock_event_seconds_total",
    "Time in s for which the reason held the GPU's clocks; how it was measured is in "
    "pyrometer_gpu_clock_event_method_info.", "reason")
CLOCK_EVENTS = _ROWS.counter("pyrometer_gpu_clock_events_total",
    "How often the reason came on since this exporter started, at least: rises that the sampler saw, and one for each "
    "time between two scrapes that the driver's counter grew in though the sampler saw nothing.", "reason")
CLOCK_EVENT_METHOD = _ROWS.gauge("pyrometer_gpu_clock_event_method_info",
    "1; where the reason's seconds come from: the driver's own nanosecond counter, or our sampling of the bitmask.",
    "reason", "method")
CLOCK_EVENT_SAMPLED = _ROWS.counter("pyrometer_gpu_clock_event_sampled_seconds_total",
    "Time in s that the sampler of the bitmask covered; where it grows slower than time, sampled reasons are too low.")
# fmt: on
FAMILIES = tuple(_ROWS)
