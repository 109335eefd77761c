"""Recovery actions and repairs that the driver asks for.

``set(recovery_action=1)``: the recommended action (driver 570 and newer). ``set(repairs=[0, 1])``: pending repairs of a
memory channel and of a processing cluster (580). ``set(unrepairable_memory=1)`` (590).
"""

from __future__ import annotations

from typing import Any

from pyrometer_simulator.nvml.abi import SUCCESS, UNSIGNED_INT, Body, Library, since_driver
from pyrometer_simulator.nvml.gpu_state import GpuState


def functions(library: Library) -> dict[str, Body]:
    """Return pending repairs and the flag of unrepairable memory."""

    def repairs(gpu: GpuState, out: Any) -> int:  # noqa: ANN401
        target = out._obj  # noqa: SLF001
        target.bChannelRepairPending, target.bTpcRepairPending = library.setting(gpu, "repairs", (0, 0))
        return SUCCESS

    def unrepairable(gpu: GpuState, out: Any) -> int:  # noqa: ANN401
        out._obj.unrepairableMemory = library.setting(gpu, "unrepairable_memory", 0)  # noqa: SLF001
        return SUCCESS

    return {
        "nvmlDeviceGetRepairStatus": library.device_call(since_driver(library, (580,), repairs)),
        "nvmlDeviceGetUnrepairableMemoryFlag_v1": library.device_call(since_driver(library, (590,), unrepairable)),
    }


def field(library: Library, gpu: GpuState, field: int, _scope: int) -> tuple[int, int] | None:
    """Return the recovery action (field 230)."""
    if field != 230 or library.driver_version < (570,):
        return None
    return UNSIGNED_INT, library.setting(gpu, "recovery_action", 0)
