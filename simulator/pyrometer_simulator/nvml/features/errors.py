"""An error from any one function or field, of a GPU that is well otherwise.

``set(errors={"nvmlDeviceGetMigMode": 4})``: what that function returns for this GPU (nvmlReturn_t).
``set(field_errors={"230": 999})``: the same for entries of nvmlDeviceGetFieldValues, by field id.
``set(garbage={"nvmlDeviceGetUtilizationRates": 2619})``: what that function writes into the number, or the last number
of the structure, that its caller points to.
``set(root=False)``: NO_PERMISSION from what the driver lets only root see.
"""

from __future__ import annotations

from typing import Any

from pyrometer_simulator.nvml.library import FakeLibrary
from pyrometer_simulator.nvml.moment import Moment

NO_PERMISSION = 4
_FOR_ROOT = frozenset({"nvmlDeviceGetSramEccErrorStatus"})


def before(library: FakeLibrary, moment: Moment, name: str, arguments: tuple[Any, ...]) -> int | None:
    """The error or the garbage that was asked for."""
    if name in _FOR_ROOT and not library.extra(moment, "root", True):  # noqa: FBT003
        return NO_PERMISSION
    garbage = library.extra(moment, "garbage", {}).get(name)
    if garbage is not None:
        target = arguments[-1]._obj  # noqa: SLF001  how a pointer made by byref() is followed
        setattr(target, target._fields_[-1][0] if hasattr(target, "_fields_") else "value", int(garbage))
        return 0
    error = library.extra(moment, "errors", {}).get(name)
    return None if error is None else int(error)
