"""The driver's own verdict on the GPU: the recovery action that it asks for, and pending repairs.

Source: nvmlDeviceGetFieldValues, field 230 (nvml.h, NVML_FI_DEV_GET_GPU_RECOVERY_ACTION; driver 570 and newer),
nvmlDeviceGetRepairStatus (driver 580) and nvmlDeviceGetUnrepairableMemoryFlag_v1 (driver 590).
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
RECOVERY_ACTION = _ROWS.gauge("pyrometer_gpu_recovery_action",
    "Recovery action that the driver requests for the GPU, from NVML field 230 (driver 570 and newer): 0 nothing, 1 "
    "GPU reset, 2 node reboot, 3 drain P2P traffic, 4 drain and reset, 5 recover the IMEX domain, 6 bus reset, 7 "
    "system reboot.")
REPAIR_PENDING = _ROWS.gauge("pyrometer_gpu_repair_pending",
    seldom("1 if a repair of a memory channel or of a processing cluster (tpc) waits for a reset, from "
    "nvmlDeviceGetRepairStatus (driver 580 and newer)."), "repair")
UNREPAIRABLE_MEMORY = _ROWS.gauge("pyrometer_gpu_unrepairable_memory",
    seldom("1 if the GPU has memory that can't be repaired, from nvmlDeviceGetUnrepairableMemoryFlag_v1 (driver 590 "
    "and newer)."))
# fmt: on


class _Condition(FieldSubject):
    def __init__(self) -> None:
        super().__init__(always=[FieldSample(230, RECOVERY_ACTION, since_driver=(570,))])

    def rare(self, _fields: Mapping[FieldKey, float]) -> Iterable[Sample]:
        """Yield repairs that wait for a reset, and memory that no reset repairs."""
        repairs = self.ask("nvmlDeviceGetRepairStatus")
        for repair, waits in zip(("channel", "tpc"), repairs or (), strict=False):
            yield self.gpu.own(REPAIR_PENDING, int(waits), repair)
        flag = self.ask_number("nvmlDeviceGetUnrepairableMemoryFlag_v1")
        if flag is not None:
            yield self.gpu.own(UNREPAIRABLE_MEMORY, flag)


SUBJECT = SubjectSpec("condition", tuple(_ROWS), _Condition)
