"""The processes on a GPU: ``set(processes=[[pid, bytes], ...])``, or with MIG instances ``[pid, bytes, gi, ci]``.

``set(processes_told=9)``: a driver in trouble, which calls the list so long and then fills in what it has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyrometer_simulator.nvml.library import FakeLibrary
from pyrometer_simulator.nvml.moment import Moment

SUCCESS, INSUFFICIENT_SIZE = 0, 7  # nvmlReturn_t
NO_INSTANCE = 0xFFFFFFFF


def functions(library: FakeLibrary) -> dict[str, Callable[..., int]]:
    """See the package."""

    def running(moment: Moment, count: Any, out: Any) -> int:  # noqa: ANN401  ctypes values
        found = library.extra(moment, "processes", [])
        room, count._obj.value = count._obj.value, len(found)  # noqa: SLF001
        if room < len(found):
            return INSUFFICIENT_SIZE
        for entry, (pid, used, *instances) in zip(out or (), found, strict=False):
            entry.pid, entry.usedGpuMemory = pid, used
            entry.gpuInstanceId, entry.computeInstanceId = instances or (NO_INSTANCE, NO_INSTANCE)
        count._obj.value = library.extra(moment, "processes_told", len(found))  # noqa: SLF001
        return SUCCESS

    return {"nvmlDeviceGetComputeRunningProcesses_v3": library.device(running)}
