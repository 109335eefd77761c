"""Errors injected into single functions and fields of an otherwise healthy GPU.

``set(errors={"nvmlDeviceGetMigMode": 4})``: what that function returns for this GPU (nvmlReturn_t).
``set(field_errors={"230": 999})``: the same for entries of nvmlDeviceGetFieldValues, by field id.
``set(garbage={"nvmlDeviceGetUtilizationRates": 2619})``: the value that this function writes in place of the number, or
of the last number of the structure, that its caller points to.
``set(root=False)``: NO_PERMISSION from functions that the driver reserves for root.
"""

from __future__ import annotations

from typing import Any

from pyrometer_simulator.nvml.abi import NO_PERMISSION, SUCCESS, Library
from pyrometer_simulator.nvml.gpu_state import GpuState

_ROOT_ONLY = frozenset({"nvmlDeviceGetSramEccErrorStatus"})


def before(library: Library, gpu: GpuState, name: str, arguments: tuple[Any, ...]) -> int | None:
    """Return the injected error, or write the injected garbage."""
    if name in _ROOT_ONLY and not library.setting(gpu, "root", True):  # noqa: FBT003
        return NO_PERMISSION
    garbage = library.setting(gpu, "garbage", {}).get(name)
    if garbage is not None:
        target = arguments[-1]._obj  # noqa: SLF001  how a pointer made by byref() is followed
        setattr(target, target._fields_[-1][0] if hasattr(target, "_fields_") else "value", int(garbage))
        return SUCCESS
    error = library.setting(gpu, "errors", {}).get(name)
    return None if error is None else int(error)
