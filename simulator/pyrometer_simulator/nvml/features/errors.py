"""An error from any one function or field, of a GPU that is well otherwise.

``set(errors={"nvmlDeviceGetMigMode": 4})``: what that function returns for this GPU (nvmlReturn_t).
``set(field_errors={"230": 999})``: the same for entries of nvmlDeviceGetFieldValues, by field id.
``set(root=False)``: NO_PERMISSION from what the driver lets only root see.
"""

from __future__ import annotations

from typing import Any

from pyrometer_simulator.nvml.library import FakeLibrary
from pyrometer_simulator.nvml.moment import Moment

NO_PERMISSION = 4
_FOR_ROOT = frozenset({"nvmlDeviceGetSramEccErrorStatus"})


def before(library: FakeLibrary, moment: Moment, name: str, _arguments: tuple[Any, ...]) -> int | None:
    """The error that was asked for."""
    if name in _FOR_ROOT and not library.extra(moment, "root", True):  # noqa: FBT003
        return NO_PERMISSION
    error = library.extra(moment, "errors", {}).get(name)
    return None if error is None else int(error)
