"""Pages of memory given up on GPUs before Ampere; newer ones remap rows (``row_remapping.py``).

Source: nvmlDeviceGetFieldValues, fields 29-31 (nvml.h, NVML_FI_DEV_RETIRED_*).
"""

from __future__ import annotations

from pyrometer_exporters.node.gpu.field_subject import FieldSample, FieldSubject, dcgm_family
from pyrometer_exporters.node.gpu.subject import SubjectSpec

# Counters as dcgm-exporter types them, RETIRED_PENDING too.
SBE = dcgm_family(
    "DCGM_FI_DEV_RETIRED_SBE", "counter", "Pages retired for corrected errors, from NVML field 29.", seldom=True
)
DBE = dcgm_family(
    "DCGM_FI_DEV_RETIRED_DBE", "counter", "Pages retired for an uncorrected error, from NVML field 30.", seldom=True
)
PENDING = dcgm_family(
    "DCGM_FI_DEV_RETIRED_PENDING",
    "counter",
    "Above 0 if pages will be retired at the next reset, from NVML field 31.",
    seldom=True,
)

SUBJECT = SubjectSpec(
    "retired_pages",
    (SBE, DBE, PENDING),
    lambda: FieldSubject(seldom=[FieldSample(29, SBE), FieldSample(30, DBE), FieldSample(31, PENDING)]),
)
