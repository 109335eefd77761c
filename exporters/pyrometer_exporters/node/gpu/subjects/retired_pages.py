"""Pages of memory given up on GPUs before Ampere; newer ones remap rows (``row_remapping.py``).

Source: nvmlDeviceGetFieldValues, fields 29-31 (nvml.h, NVML_FI_DEV_RETIRED_*).
"""

from __future__ import annotations

from pyrometer_exporters.node.gpu.families import GpuFamilies, seldom
from pyrometer_exporters.node.gpu.field_subject import FieldSample, FieldSubject
from pyrometer_exporters.node.gpu.subject import SubjectSpec

# fmt: off
_ROWS = GpuFamilies()
# Counters as dcgm-exporter types them, RETIRED_PENDING too.
SBE = _ROWS.dcgm_counter("DCGM_FI_DEV_RETIRED_SBE", seldom("Pages retired for corrected errors, from NVML field 29."))
DBE = _ROWS.dcgm_counter("DCGM_FI_DEV_RETIRED_DBE",
    seldom("Pages retired for an uncorrected error, from NVML field 30."))
PENDING = _ROWS.dcgm_counter("DCGM_FI_DEV_RETIRED_PENDING",
    seldom("Above 0 if pages will be retired at the next reset, from NVML field 31."))
# fmt: on

SUBJECT = SubjectSpec(
    "retired_pages",
    tuple(_ROWS),
    lambda: FieldSubject(seldom=[FieldSample(29, SBE), FieldSample(30, DBE), FieldSample(31, PENDING)]),
)
