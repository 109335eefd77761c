"""The GPU's place in an NVSwitch fabric: registered or not, and what is wrong with it.

Source: nvmlDeviceGetGpuFabricInfoV (driver 550 and newer), whose health mask is in nvml.h under
NVML_GPU_FABRIC_HEALTH_MASK_*.
"""

from __future__ import annotations

import ctypes
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from pyrometer_exporters.framework.metrics import Sample
from pyrometer_exporters.node.gpu.families import GpuFamilies, seldom
from pyrometer_exporters.node.gpu.field_subject import FieldSubject
from pyrometer_exporters.node.gpu.nvml import FieldKey
from pyrometer_exporters.node.gpu.subject import SubjectSpec

# fmt: off
_ROWS = GpuFamilies()
STATE = _ROWS.gauge("pyrometer_gpu_fabric_state",
    seldom("How far the GPU's registration with the fabric manager is, from nvmlDeviceGetGpuFabricInfoV (driver 550 "
    "and newer): 1 not started, 2 in progress, 3 completed; absent without a fabric."))
STATUS = _ROWS.gauge("pyrometer_gpu_fabric_status",
    seldom("Result of the registration, an nvmlReturn_t: 0 success; only where the state is 3 (completed), from "
    "nvmlDeviceGetGpuFabricInfoV (driver 550 and newer)."))
PROBLEM = _ROWS.gauge("pyrometer_gpu_fabric_problem",
    seldom("1 if the fabric manager reports this problem, else 0, from the health mask of "
    "nvmlDeviceGetGpuFabricInfoV (driver 550 and newer); incorrect_configuration gives the kind of mistake as "
    "nvml.h numbers it from 2 on. Absent where the platform doesn't report it"), "problem")
INFO = _ROWS.gauge("pyrometer_gpu_fabric_info",
    seldom("1; the NVLink domain and the clique in it that the GPU belongs to, from nvmlDeviceGetGpuFabricInfoV "
    "(driver 550 and newer)"), "cluster_uuid", "clique")
# fmt: on

_COMPLETED = 3  # NVML_GPU_FABRIC_STATE_COMPLETED

# Where each two-bit answer lies in the mask (NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_*), and which answer is the bad one.
_PROBLEMS = {
    "degraded_bandwidth": (0, 1),
    "route_recovery": (2, 1),
    "route_unhealthy": (4, 1),
    "access_timeout_recovery": (6, 1),
    "no_partition": (12, 2),
    "manager_disconnected": (14, 2),
}
_CONFIGURATION_SHIFT, _CONFIGURATION_WIDTH, _CONFIGURATION_GOOD = 8, 0xF, 1


class _Fabric(FieldSubject):
    def rare(self, _fields: Mapping[FieldKey, float]) -> Iterable[Sample]:
        """State, health and membership."""
        info = self._info()
        if info is None or not info.state:  # NVML_GPU_FABRIC_STATE_NOT_SUPPORTED
            return
        yield self.gpu.own(STATE, int(info.state))
        if info.state != _COMPLETED:
            return
        yield self.gpu.own(STATUS, int(info.status))
        yield self.gpu.own(INFO, 1, str(uuid.UUID(bytes=bytes(info.clusterUuid))), str(info.cliqueId))
        for problem, value in _problems(int(info.healthMask)):
            yield self.gpu.own(PROBLEM, value, problem)

    def _info(self) -> Any:  # noqa: ANN401  pynvml is untyped
        # The third version came with driver 575; the mask is in both.
        for name in ("c_nvmlGpuFabricInfo_v3_t", "c_nvmlGpuFabricInfo_v2_t"):
            info = self.structure(name)
            if info is not None and self.ask("nvmlDeviceGetGpuFabricInfoV", ctypes.byref(info)) is not None:
                return info
        return None


def _problems(mask: int) -> Iterable[tuple[str, int]]:
    """Yield the problems in the mask; 0 in their two bits means unknown."""
    for problem, (shift, bad) in _PROBLEMS.items():
        answer = mask >> shift & 0x3
        if answer:
            yield problem, int(answer == bad)
    configuration = mask >> _CONFIGURATION_SHIFT & _CONFIGURATION_WIDTH
    if configuration:
        yield "incorrect_configuration", configuration if configuration > _CONFIGURATION_GOOD else 0


SUBJECT = SubjectSpec("fabric", tuple(_ROWS), _Fabric)
