"""NVSwitch fabric registration and health.

``set(fabric={"state": 2})``: 0 none, 1 not started, 2 in progress, 3 completed (the default); also ``status`` (an
nvmlReturn_t), ``clique``, ``cluster`` (a UUID) and ``mask`` (nvml.h, NVML_GPU_FABRIC_HEALTH_MASK_*; the default says
that the bandwidth isn't degraded and nothing else).
"""

from __future__ import annotations

import uuid
from typing import Any

from pyrometer_simulator.nvml.abi import ARGUMENT_VERSION_MISMATCH, SUCCESS, Body, Library, since_driver
from pyrometer_simulator.nvml.gpu_state import GpuState

_CLUSTER = "7a1f1a52-53c4-4b8f-9d5b-0f6f3c2b9e11"


def functions(library: Library) -> dict[str, Body]:
    """Return the fabric's registration state and health."""

    def info(gpu: GpuState, out: Any) -> int:  # noqa: ANN401
        target = out._obj  # noqa: SLF001
        if target.version >> 24 > 2 and library.driver_version < (575,):
            return ARGUMENT_VERSION_MISMATCH
        state = library.setting(gpu, "fabric", {})
        target.state = state.get("state", 3)
        target.status = state.get("status", 0)
        target.cliqueId = state.get("clique", 0)
        target.healthMask = state.get("mask", 0x2)
        target.clusterUuid[:] = list(uuid.UUID(state.get("cluster", _CLUSTER)).bytes)
        return SUCCESS

    return {"nvmlDeviceGetGpuFabricInfoV": library.device_call(since_driver(library, (550,), info))}
