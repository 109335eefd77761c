"""The NVSwitch fabric.

``set(fabric={"state": 2})``: 0 none, 1 not started, 2 in progress, 3 completed (the default); also ``status`` (an
nvmlReturn_t), ``clique``, ``cluster`` (a UUID) and ``mask`` (nvml.h, NVML_GPU_FABRIC_HEALTH_MASK_*; the default says
that the bandwidth isn't degraded and nothing else).
"""

from __future__ import annotations

import uuid
from typing import Any

from pyrometer_simulator.nvml.features import since
from pyrometer_simulator.nvml.library import SUCCESS, Body, FakeLibrary
from pyrometer_simulator.nvml.moment import Moment

ARGUMENT_VERSION_MISMATCH = 25
_CLUSTER = "7a1f1a52-53c4-4b8f-9d5b-0f6f3c2b9e11"


def functions(library: FakeLibrary) -> dict[str, Body]:
    """The one call that there is."""

    def info(moment: Moment, out: Any) -> int:  # noqa: ANN401
        target = out._obj  # noqa: SLF001
        if target.version >> 24 > 2 and library.driver < (575,):
            return ARGUMENT_VERSION_MISMATCH
        state = library.extra(moment, "fabric", {})
        target.state = state.get("state", 3)
        target.status = state.get("status", 0)
        target.cliqueId = state.get("clique", 0)
        target.healthMask = state.get("mask", 0x2)
        target.clusterUuid[:] = list(uuid.UUID(state.get("cluster", _CLUSTER)).bytes)
        return SUCCESS

    return {"nvmlDeviceGetGpuFabricInfoV": library.device(since(library, (550,), info))}
