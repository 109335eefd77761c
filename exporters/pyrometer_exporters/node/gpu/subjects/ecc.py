"""Memory errors that the GPU's error-correcting code found, since the driver was loaded and since the GPU was made.

Source: nvmlDeviceGetFieldValues, fields 1-28 (nvml.h, NVML_FI_DEV_ECC_*); for the SRAM as a whole
nvmlDeviceGetMemoryErrorCounter and, for root, nvmlDeviceGetSramEccErrorStatus. nvmlDeviceGetEccMode says whether ECC is
on where a driver fills in none of these fields while it is off (NVIDIA bug 2009232).
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping

from pyrometer_exporters.framework.metrics import Columns, Sample
from pyrometer_exporters.node.gpu.families import GpuFamilies, seldom
from pyrometer_exporters.node.gpu.field_subject import FieldSample, FieldSubject
from pyrometer_exporters.node.gpu.nvml import FieldKey
from pyrometer_exporters.node.gpu.subject import SubjectSpec

CURRENT_FIELD, PENDING_FIELD = 1, 2

# fmt: off
_ROWS = GpuFamilies()
ECC_CURRENT = _ROWS.dcgm_gauge("DCGM_FI_DEV_ECC_CURRENT", "1 if ECC is on, from NVML field 1 or nvmlDeviceGetEccMode.")
ECC_PENDING = _ROWS.dcgm_gauge("DCGM_FI_DEV_ECC_PENDING",
    "1 if ECC is on after the next reset, from NVML field 2 or nvmlDeviceGetEccMode.")
SBE_VOLATILE = _ROWS.dcgm_counter("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
    "Corrected memory errors since the driver was loaded or the GPU reset, from NVML field 3.")
DBE_VOLATILE = _ROWS.dcgm_counter("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
    "Uncorrected memory errors since the driver was loaded or the GPU reset, from NVML field 4.")
SBE_AGGREGATE = _ROWS.dcgm_counter("DCGM_FI_DEV_ECC_SBE_AGG_TOTAL",
    "Corrected memory errors of the GPU's life, from NVML field 5.")
DBE_AGGREGATE = _ROWS.dcgm_counter("DCGM_FI_DEV_ECC_DBE_AGG_TOTAL",
    "Uncorrected memory errors of the GPU's life, from NVML field 6.")
BY_LOCATION = _ROWS.counter("pyrometer_gpu_ecc_errors_total",
    seldom("Memory errors by place, from NVML fields 7-28; for location sram, which is all memory on the chip and so "
    "contains others, from nvmlDeviceGetMemoryErrorCounter. Counter volatile begins with the driver or a "
    "reset, aggregate with the GPU."), "counter", "location", "error")
SRAM_EXCEEDED = _ROWS.gauge("pyrometer_gpu_sram_ecc_threshold_exceeded",
    seldom("1 if uncorrected errors of the SRAM have passed the limit for replacement, from "
    "nvmlDeviceGetSramEccErrorStatus; absent where the driver lets only root see it."))
# fmt: on

# NVML counts these fields on in the order of nvml.h; the control units (cbu) have no corrected errors.
_PLACES = tuple(
    (location, kind)
    for location in ("l1_cache", "l2_cache", "device_memory", "register_file", "texture_memory", "cbu")
    for kind in ("corrected", "uncorrected")
    if (location, kind) != ("cbu", "corrected")
)
_BY_LOCATION = [
    FieldSample(first + offset, BY_LOCATION, (counter, *place))
    for counter, first in (("volatile", 7), ("aggregate", 18))
    for offset, place in enumerate(_PLACES)
]
_SRAM_LOCATION = 7  # NVML_MEMORY_LOCATION_SRAM


class _Ecc(FieldSubject):
    def __init__(self) -> None:
        always = [
            FieldSample(CURRENT_FIELD, ECC_CURRENT),
            FieldSample(PENDING_FIELD, ECC_PENDING),
            FieldSample(3, SBE_VOLATILE),
            FieldSample(4, DBE_VOLATILE),
            FieldSample(5, SBE_AGGREGATE),
            FieldSample(6, DBE_AGGREGATE),
        ]
        super().__init__(always, _BY_LOCATION)

    def read(self, fields: Mapping[FieldKey, float]) -> Iterable[Sample | Columns]:
        """Without ECC there are no counts, whatever the entries hold."""
        if fields.get(CURRENT_FIELD) == 0:
            fields = {key: fields[key] for key in (CURRENT_FIELD, PENDING_FIELD) if key in fields}
        return super().read(fields)

    def rare(self, fields: Mapping[FieldKey, float]) -> Iterable[Sample]:
        """Yield the SRAM's own counts and verdict."""
        if fields.get(CURRENT_FIELD) == 0:
            return
        if CURRENT_FIELD not in fields:
            for family, mode in zip((ECC_CURRENT, ECC_PENDING), self.ask("nvmlDeviceGetEccMode") or (), strict=False):
                yield self.gpu.dcgm(family, int(mode))
        for counter_type, counter in enumerate(("volatile", "aggregate")):  # nvmlEccCounterType_t
            for error_type, kind in enumerate(("corrected", "uncorrected")):  # nvmlMemoryErrorType_t
                count = self.ask_number("nvmlDeviceGetMemoryErrorCounter", error_type, counter_type, _SRAM_LOCATION)
                if count is not None:
                    yield self.gpu.own(BY_LOCATION, count, counter, "sram", kind)
        status = self.structure("c_nvmlEccSramErrorStatus_v1_t")
        if status is not None and self.ask("nvmlDeviceGetSramEccErrorStatus", ctypes.byref(status)) is not None:
            yield self.gpu.own(SRAM_EXCEEDED, int(status.bThresholdExceeded))


SUBJECT = SubjectSpec("ecc", tuple(_ROWS), _Ecc)
