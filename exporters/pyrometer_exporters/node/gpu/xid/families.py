"""Metric families about Xids."""

from __future__ import annotations

from pyrometer_exporters.node.gpu.families import GpuFamilies

# fmt: off
_ROWS = GpuFamilies()
DCGM_XID_ERRORS = _ROWS.dcgm_gauge("DCGM_FI_DEV_XID_ERRORS",
    "Number of the GPU's latest Xid since the node was booted, 0 for none: repeats don't show, "
    "pyrometer_gpu_xid_errors_total counts.", "err_code", "err_msg")
ERRORS = _ROWS.counter("pyrometer_gpu_xid_errors_total",
    "Xid errors, each once, from NVML's events and the kernel's log; class is app, info, warning or critical. Codes "
    "that can be critical are exported from the start. A GPU that NVML doesn't list has its PCI address in gpu.",
    "xid", "class")
CRITICAL = _ROWS.counter("pyrometer_gpu_xid_critical_errors_total",
    "Those of pyrometer_gpu_xid_errors_total of class critical, all codes together: one series a GPU to watch.")
CRITICAL_LAST = _ROWS.gauge("pyrometer_gpu_xid_critical_last_timestamp_seconds",
    "When the GPU last reported a critical Xid, in s since the epoch; absent where there was none.")
CONSEQUENCES = _ROWS.counter("pyrometer_gpu_xid_consequences_total",
    "Those of pyrometer_gpu_xid_errors_total that the driver called a consequence of an earlier Xid, by that Xid "
    "(caused_by); from the kernel's log.", "xid", "caused_by")
LAST_TIMESTAMP = _ROWS.gauge("pyrometer_gpu_xid_last_timestamp_seconds",
    "When an Xid was last reported, in s since the epoch; absent for those that never were.", "xid")
LAST_INFO = _ROWS.gauge("pyrometer_gpu_xid_last_info",
    "1; the GPU's latest Xid: its MIG instances, the process that the driver names and, where that was known at the "
    "time, its job. Empty is unknown or none.",
    "xid", "caused_by", "gpu_instance", "compute_instance", "pid", "process", "job_id", "user")
# fmt: on
FAMILIES = tuple(_ROWS)
