"""What the driver thinks of the GPU.

``set(recovery_action=1)``: what it asks for (driver 570 and newer). ``set(repairs=[0, 1])``: whether a repair of a
memory channel, of a processing cluster waits (580). ``set(unrepairable_memory=1)`` (590).
"""

from __future__ import annotations

from typing import Any

from pyrometer_simulator.nvml.features import since
from pyrometer_simulator.nvml.library import SUCCESS, UNSIGNED_INT, Body, FakeLibrary
from pyrometer_simulator.nvml.moment import Moment


def functions(library: FakeLibrary) -> dict[str, Body]:
    """Repairs that wait, and those that can't be made."""

    def repairs(moment: Moment, out: Any) -> int:  # noqa: ANN401
        target = out._obj  # noqa: SLF001
        target.bChannelRepairPending, target.bTpcRepairPending = library.extra(moment, "repairs", (0, 0))
        return SUCCESS

    def unrepairable(moment: Moment, out: Any) -> int:  # noqa: ANN401
        out._obj.unrepairableMemory = library.extra(moment, "unrepairable_memory", 0)  # noqa: SLF001
        return SUCCESS

    return {
        "nvmlDeviceGetRepairStatus": library.device(since(library, (580,), repairs)),
        "nvmlDeviceGetUnrepairableMemoryFlag_v1": library.device(since(library, (590,), unrepairable)),
    }


def field(library: FakeLibrary, moment: Moment, field: int, _scope: int) -> tuple[int, int] | None:
    """Field 230."""
    if field != 230 or library.driver < (570,):
        return None
    return UNSIGNED_INT, library.extra(moment, "recovery_action", 0)
