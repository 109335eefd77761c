"""Metric families about Xids."""

from __future__ import annotations

from pyrometer_exporters.framework.metrics import Family
from pyrometer_exporters.node.gpu.families import DCGM_LABELS, GPU_LABELS

ERRORS = Family(
    "pyrometer_gpu_xid_errors_total",
    "counter",
    "Xid errors, each once, from NVML's events and the kernel's log; class is app, info, warning or critical. Codes "
    "that can be critical are exported from the start. A GPU that NVML doesn't list has its PCI address in gpu.",
    (*GPU_LABELS, "xid", "class"),
)
CRITICAL = Family(
    "pyrometer_gpu_xid_critical_errors_total",
    "counter",
    "Those of pyrometer_gpu_xid_errors_total of class critical, all codes together: one series a GPU to watch.",
    GPU_LABELS,
)
CRITICAL_LAST = Family(
    "pyrometer_gpu_xid_critical_last_timestamp_seconds",
    "gauge",
    "When the GPU last reported a critical Xid, in s since the epoch; absent where there was none.",
    GPU_LABELS,
)
CONSEQUENCES = Family(
    "pyrometer_gpu_xid_consequences_total",
    "counter",
    "Those of pyrometer_gpu_xid_errors_total that the driver called a consequence of an earlier Xid, by that Xid "
    "(caused_by); from the kernel's log.",
    (*GPU_LABELS, "xid", "caused_by"),
)
LAST_TIMESTAMP = Family(
    "pyrometer_gpu_xid_last_timestamp_seconds",
    "gauge",
    "When an Xid was last reported, in s since the epoch; absent for those that never were.",
    (*GPU_LABELS, "xid"),
)
LAST_INFO = Family(
    "pyrometer_gpu_xid_last_info",
    "gauge",
    "1; the GPU's latest Xid: its MIG instances, the process that the driver names and, where that was known at the "
    "time, its job. Empty is unknown or none.",
    (*GPU_LABELS, "xid", "caused_by", "gpu_instance", "compute_instance", "pid", "process", "job_id", "user"),
)
DCGM_XID_ERRORS = Family(
    "DCGM_FI_DEV_XID_ERRORS",
    "gauge",
    "Number of the GPU's latest Xid since the node was booted, 0 for none: repeats don't show, "
    "pyrometer_gpu_xid_errors_total counts.",
    (*DCGM_LABELS, "err_code", "err_msg"),
)
FAMILIES = (DCGM_XID_ERRORS, ERRORS, CRITICAL, CRITICAL_LAST, CONSEQUENCES, LAST_TIMESTAMP, LAST_INFO)
