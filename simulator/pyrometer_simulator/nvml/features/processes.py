"""The processes on a GPU: ``set(processes=[[pid, bytes], ...])``, or with MIG instances ``[pid, bytes, gi, ci]``.

``set(processes_announced=9)``: a faulty driver that announces this many entries and fills in fewer.
"""

from __future__ import annotations

from typing import Any

from pyrometer_simulator.nvml.abi import INSUFFICIENT_SIZE, NO_INSTANCE, SUCCESS, Body, Library
from pyrometer_simulator.nvml.gpu_state import GpuState


def functions(library: Library) -> dict[str, Body]:
    """Return the list of compute processes."""

    def running(gpu: GpuState, count: Any, out: Any) -> int:  # noqa: ANN401  ctypes values
        found = library.setting(gpu, "processes", [])
        room, count._obj.value = count._obj.value, len(found)  # noqa: SLF001
        if room < len(found):
            return INSUFFICIENT_SIZE
        for entry, (pid, used, *instances) in zip(out or (), found, strict=False):
            entry.pid, entry.usedGpuMemory = pid, used
            entry.gpuInstanceId, entry.computeInstanceId = instances or (NO_INSTANCE, NO_INSTANCE)
        count._obj.value = library.setting(gpu, "processes_announced", len(found))  # noqa: SLF001
        return SUCCESS

    return {"nvmlDeviceGetComputeRunningProcesses_v3": library.device_call(running)}
