"""Rows of memory replaced by spare ones (Ampere and newer), and how many spares are left.

Source: nvmlDeviceGetFieldValues, fields 142-145 (nvml.h, NVML_FI_DEV_REMAPPED_*), which answer also while MIG
instances exist, where nvmlDeviceGetRemappedRows fails; fields 301-307 on newer drivers;
nvmlDeviceGetRowRemapperHistogram.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyrometer_exporters.framework.metrics import Sample
from pyrometer_exporters.node.gpu.field_subject import FieldSample, FieldSubject, dcgm_family, own_family
from pyrometer_exporters.node.gpu.nvml import FieldKey
from pyrometer_exporters.node.gpu.subject import SubjectSpec

CORRECTABLE = dcgm_family(
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "counter", "Rows remapped for corrected errors, from NVML field 142."
)
UNCORRECTABLE = dcgm_family(
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
    "counter",
    "Rows remapped for uncorrected errors, from NVML field 143.",
)
PENDING = dcgm_family(
    "DCGM_FI_DEV_ROW_REMAP_PENDING", "gauge", "1 if rows are waiting for a reset to be remapped, from NVML field 144."
)
FAILURE = dcgm_family(
    "DCGM_FI_DEV_ROW_REMAP_FAILURE",
    "gauge",
    "1 if a row could not be remapped: the GPU qualifies for replacement; from NVML field 145.",
)
BANKS_MAX = dcgm_family(
    "DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_MAX",
    "gauge",
    "Memory banks with all their spare rows, from nvmlDeviceGetRowRemapperHistogram.",
    seldom=True,
)
BANKS_HIGH = dcgm_family(
    "DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_HIGH",
    "gauge",
    "Memory banks with most of their spare rows, from nvmlDeviceGetRowRemapperHistogram.",
    seldom=True,
)
BANKS_PARTIAL = dcgm_family(
    "DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_PARTIAL",
    "gauge",
    "Memory banks with a part of their spare rows, from nvmlDeviceGetRowRemapperHistogram.",
    seldom=True,
)
BANKS_LOW = dcgm_family(
    "DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_LOW",
    "gauge",
    "Memory banks with few spare rows, from nvmlDeviceGetRowRemapperHistogram.",
    seldom=True,
)
BANKS_NONE = dcgm_family(
    "DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_NONE",
    "gauge",
    "Memory banks without a spare row: the next error there can't be remapped; from nvmlDeviceGetRowRemapperHistogram.",
    seldom=True,
)
INACTIVE = own_family(
    "pyrometer_gpu_inactive_row_remappings",
    "gauge",
    "Rows that will be remapped at the next reset, from NVML fields 301 and 302 (driver 610 and newer).",
    "error",
    seldom=True,
)
BANK_REMAPPINGS = own_family(
    "pyrometer_gpu_bank_remappings",
    "gauge",
    "Whole memory banks remapped, now (active) and from the next reset on (inactive), from NVML fields 303 and 304 "
    "(driver 615 and newer).",
    "state",
    seldom=True,
)
BANK_REMAPPING_PENDING = own_family(
    "pyrometer_gpu_bank_remapping_pending",
    "gauge",
    "1 if a memory bank is waiting for a reset to be remapped, from NVML field 307 (driver 615 and newer).",
    seldom=True,
)
_HISTOGRAM = {
    "max": BANKS_MAX,
    "high": BANKS_HIGH,
    "partial": BANKS_PARTIAL,
    "low": BANKS_LOW,
    "none": BANKS_NONE,
}


class _RowRemapping(FieldSubject):
    def __init__(self) -> None:
        always = [
            FieldSample(142, CORRECTABLE),
            FieldSample(143, UNCORRECTABLE),
            FieldSample(144, PENDING),
            FieldSample(145, FAILURE),
        ]
        seldom = [
            FieldSample(301, INACTIVE, ("corrected",), since_driver=(610,)),
            FieldSample(302, INACTIVE, ("uncorrected",), since_driver=(610,)),
            FieldSample(303, BANK_REMAPPINGS, ("active",), since_driver=(615,)),
            FieldSample(304, BANK_REMAPPINGS, ("inactive",), since_driver=(615,)),
            FieldSample(307, BANK_REMAPPING_PENDING, since_driver=(615,)),
        ]
        super().__init__(always, seldom)

    def rare(self, _fields: Mapping[FieldKey, float]) -> Iterable[Sample]:
        """Yield the banks by how many spare rows they have left."""
        histogram = self.ask("nvmlDeviceGetRowRemapperHistogram")
        if histogram is not None:
            for member, family in _HISTOGRAM.items():
                yield self.gpu.dcgm(family, int(getattr(histogram, member)))


SUBJECT = SubjectSpec(
    "row_remapping",
    (
        CORRECTABLE,
        UNCORRECTABLE,
        PENDING,
        FAILURE,
        *_HISTOGRAM.values(),
        INACTIVE,
        BANK_REMAPPINGS,
        BANK_REMAPPING_PENDING,
    ),
    _RowRemapping,
)
