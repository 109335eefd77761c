"""Rows of memory replaced by spare ones (Ampere and newer), and how many spares are left.

Source: nvmlDeviceGetFieldValues, fields 142-145 (nvml.h, NVML_FI_DEV_REMAPPED_*), which answer also while MIG
instances exist, where nvmlDeviceGetRemappedRows fails; fields 301-307 on newer drivers;
nvmlDeviceGetRowRemapperHistogram.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyrometer_exporters.framework.metrics import Sample
from pyrometer_exporters.node.gpu.families import GpuFamilies, seldom
from pyrometer_exporters.node.gpu.field_subject import FieldSample, FieldSubject
from pyrometer_exporters.node.gpu.nvml import FieldKey
from pyrometer_exporters.node.gpu.subject import SubjectSpec

# fmt: off
_ROWS = GpuFamilies()
CORRECTABLE = _ROWS.dcgm_counter("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
    "Rows remapped for corrected errors, from NVML field 142.")
UNCORRECTABLE = _ROWS.dcgm_counter("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
    "Rows remapped for uncorrected errors, from NVML field 143.")
PENDING = _ROWS.dcgm_gauge("DCGM_FI_DEV_ROW_REMAP_PENDING",
    "1 if rows are waiting for a reset to be remapped, from NVML field 144.")
FAILURE = _ROWS.dcgm_gauge("DCGM_FI_DEV_ROW_REMAP_FAILURE",
    "1 if a row could not be remapped: the GPU qualifies for replacement; from NVML field 145.")
BANKS_MAX = _ROWS.dcgm_gauge("DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_MAX",
    seldom("Memory banks with all their spare rows, from nvmlDeviceGetRowRemapperHistogram."))
BANKS_HIGH = _ROWS.dcgm_gauge("DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_HIGH",
    seldom("Memory banks with most of their spare rows, from nvmlDeviceGetRowRemapperHistogram."))
BANKS_PARTIAL = _ROWS.dcgm_gauge("DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_PARTIAL",
    seldom("Memory banks with a part of their spare rows, from nvmlDeviceGetRowRemapperHistogram."))
BANKS_LOW = _ROWS.dcgm_gauge("DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_LOW",
    seldom("Memory banks with few spare rows, from nvmlDeviceGetRowRemapperHistogram."))
BANKS_NONE = _ROWS.dcgm_gauge("DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_NONE",
    seldom("Memory banks without a spare row: the next error there can't be remapped; from "
    "nvmlDeviceGetRowRemapperHistogram."))
INACTIVE = _ROWS.gauge("pyrometer_gpu_inactive_row_remappings",
    seldom("Rows that will be remapped at the next reset, from NVML fields 301 and 302 (driver 610 and newer)."),
    "error")
BANK_REMAPPINGS = _ROWS.gauge("pyrometer_gpu_bank_remappings",
    seldom("Whole memory banks remapped, now (active) and from the next reset on (inactive), from NVML fields 303 "
    "and 304 (driver 615 and newer)."), "state")
BANK_REMAPPING_PENDING = _ROWS.gauge("pyrometer_gpu_bank_remapping_pending",
    seldom("1 if a memory bank is waiting for a reset to be remapped, from NVML field 307 (driver 615 and newer)."))
# fmt: on
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


SUBJECT = SubjectSpec("row_remapping", tuple(_ROWS), _RowRemapping)
