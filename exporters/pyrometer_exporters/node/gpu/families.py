"""The GPU collector's metric families: DCGM's where DCGM has a correct one, else ours.

The ``DCGM_FI_*`` names, units and labels are dcgm-exporter's, so that dashboards and rules made for it work unchanged;
its label for the host is ``Hostname`` up to release 4.8.2 and ``hostname`` after, hence ``--gpu.hostname-label``.
"""

from __future__ import annotations

from pyrometer_exporters.framework.metrics import Family

HOSTNAME_LABEL = "Hostname"
DCGM_LABELS = ("gpu", "UUID", "pci_bus_id", "device", "modelName", HOSTNAME_LABEL, "DCGM_FI_DRIVER_VERSION")
GPU_LABELS = ("gpu", "uuid")

SM_CLOCK = Family(
    "DCGM_FI_DEV_SM_CLOCK",
    "gauge",
    "Clock of the streaming multiprocessors in MHz, from nvmlDeviceGetClockInfo(NVML_CLOCK_SM).",
    DCGM_LABELS,
)
MEM_CLOCK = Family(
    "DCGM_FI_DEV_MEM_CLOCK",
    "gauge",
    "Clock of the memory in MHz, from nvmlDeviceGetClockInfo(NVML_CLOCK_MEM).",
    DCGM_LABELS,
)
GPU_TEMP = Family(
    "DCGM_FI_DEV_GPU_TEMP",
    "gauge",
    "Temperature of the GPU die in degrees Celsius, from nvmlDeviceGetTemperatureV or nvmlDeviceGetTemperature.",
    DCGM_LABELS,
)
MEMORY_TEMP = Family(
    "DCGM_FI_DEV_MEMORY_TEMP",
    "gauge",
    "Temperature of the memory in degrees Celsius, from NVML field 82; absent where the memory has no sensor.",
    DCGM_LABELS,
)
POWER_USAGE = Family(
    "DCGM_FI_DEV_POWER_USAGE",
    "gauge",
    "Power drawn by the GPU in W, from nvmlDeviceGetPowerUsage: a mean over 1 s on most GPUs since Ampere.",
    DCGM_LABELS,
)
ENFORCED_POWER_LIMIT = Family(
    "DCGM_FI_DEV_ENFORCED_POWER_LIMIT",
    "gauge",
    "Lowest power limit in force in W, from nvmlDeviceGetEnforcedPowerLimit.",
    DCGM_LABELS,
)
TOTAL_ENERGY = Family(
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
    "counter",
    "Energy used since the driver was loaded in mJ, from NVML field 83.",
    DCGM_LABELS,
)
GPU_UTIL = Family(
    "DCGM_FI_DEV_GPU_UTIL",
    "gauge",
    "Share of time in which any kernel ran in %, from nvmlDeviceGetUtilizationRates; not how well the GPU was used.",
    DCGM_LABELS,
)
MEM_COPY_UTIL = Family(
    "DCGM_FI_DEV_MEM_COPY_UTIL",
    "gauge",
    "Share of time in which memory was read or written in %, from nvmlDeviceGetUtilizationRates.",
    DCGM_LABELS,
)
FB_FREE = Family(
    "DCGM_FI_DEV_FB_FREE", "gauge", "Free frame buffer in MiB, from nvmlDeviceGetMemoryInfo_v2.", DCGM_LABELS
)
FB_USED = Family(
    "DCGM_FI_DEV_FB_USED",
    "gauge",
    "Used frame buffer in MiB, without what is reserved, from nvmlDeviceGetMemoryInfo_v2.",
    DCGM_LABELS,
)
FB_RESERVED = Family(
    "DCGM_FI_DEV_FB_RESERVED",
    "gauge",
    "Frame buffer kept by driver and firmware in MiB, from nvmlDeviceGetMemoryInfo_v2.",
    DCGM_LABELS,
)
FB_TOTAL = Family(
    "DCGM_FI_DEV_FB_TOTAL", "gauge", "Size of the frame buffer in MiB, from nvmlDeviceGetMemoryInfo_v2.", DCGM_LABELS
)
FB_USED_PERCENT = Family(
    "DCGM_FI_DEV_FB_USED_PERCENT",
    "gauge",
    "Used share of the frame buffer that isn't reserved, from nvmlDeviceGetMemoryInfo_v2; 0 to 1 in spite of its name.",
    DCGM_LABELS,
)
CLOCKS_EVENT_REASONS = Family(
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS",
    "gauge",
    "Bitmask of the reasons for the present clocks, from nvmlDeviceGetCurrentClocksEventReasons; "
    "pyrometer_gpu_clock_event_seconds_total misses nothing between two scrapes.",
    DCGM_LABELS,
)
CLOCK_THROTTLE_REASONS = Family(
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS",
    "gauge",
    "The same as DCGM_FI_DEV_CLOCKS_EVENT_REASONS, under its older name, by which most rules know it.",
    DCGM_LABELS,
)
DCGM_FAMILIES = (
    SM_CLOCK,
    MEM_CLOCK,
    GPU_TEMP,
    MEMORY_TEMP,
    POWER_USAGE,
    ENFORCED_POWER_LIMIT,
    TOTAL_ENERGY,
    GPU_UTIL,
    MEM_COPY_UTIL,
    FB_FREE,
    FB_USED,
    FB_RESERVED,
    FB_TOTAL,
    FB_USED_PERCENT,
    CLOCKS_EVENT_REASONS,
    CLOCK_THROTTLE_REASONS,
)

UP = Family(
    "pyrometer_gpu_up",
    "gauge",
    "1 if the GPU answered within its deadline and with plausible values, else 0; pyrometer_down_reason_info "
    "has the reason, and also single calls that failed on a GPU that answers others.",
    GPU_LABELS,
)
INFO = Family(
    "pyrometer_gpu_info",
    "gauge",
    "1; the GPU's identity, as reported when it was first opened. pci_bus_id is spelled as the kernel does.",
    (*GPU_LABELS, "pci_bus_id", "model", "serial", "vbios", "driver"),
)
PRESENT = Family(
    "pyrometer_gpus_present",
    "gauge",
    "NVIDIA GPUs on the PCI bus that are not passed to a virtual machine (source=pci, from sysfs), that the driver "
    "lists (source=nvml) and that the node should have (source=expected, from --collector.gpu.expected).",
    ("source",),
)
ENERGY = Family(
    "pyrometer_gpu_energy_joules_total",
    "counter",
    "Energy used since the driver was loaded in J, from NVML field 83.",
    GPU_LABELS,
)
CLOCK_EVENT_SECONDS = Family(
    "pyrometer_gpu_clock_event_seconds_total",
    "counter",
    "Time in s for which the reason held the GPU's clocks; how it was measured is in "
    "pyrometer_gpu_clock_event_method_info.",
    (*GPU_LABELS, "reason"),
)
CLOCK_EVENTS = Family(
    "pyrometer_gpu_clock_events_total",
    "counter",
    "How often the reason came on since this exporter started, at least: rises that the sampler saw, and one for each "
    "time between two scrapes that the driver's counter grew in though the sampler saw nothing.",
    (*GPU_LABELS, "reason"),
)
CLOCK_EVENT_METHOD = Family(
    "pyrometer_gpu_clock_event_method_info",
    "gauge",
    "1; where the reason's seconds come from: the driver's own nanosecond counter, or our sampling of the bitmask.",
    (*GPU_LABELS, "reason", "method"),
)
CLOCK_EVENT_SAMPLED = Family(
    "pyrometer_gpu_clock_event_sampled_seconds_total",
    "counter",
    "Time in s that the sampler of the bitmask covered; where it grows slower than time, sampled reasons are too low.",
    GPU_LABELS,
)
OWN_FAMILIES = (UP, INFO, PRESENT, ENERGY, CLOCK_EVENT_SECONDS, CLOCK_EVENTS, CLOCK_EVENT_METHOD, CLOCK_EVENT_SAMPLED)
FAMILIES = (*DCGM_FAMILIES, *OWN_FAMILIES)
