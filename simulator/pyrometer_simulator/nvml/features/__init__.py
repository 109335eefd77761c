"""Parts of the simulated driver, one subject per file, discovered when a library is made.

A module here may define:

- ``functions(library)``: C functions by name;
- ``field(library, gpu, field, scope)``: ``(type, value)`` of a field value, or None for another feature's field;
- ``before(library, gpu, name, arguments)``: an nvmlReturn_t in place of any call on a GPU's handle, or None.

Their state is what ``SimulatedGpu.set(name=value)`` stored, read with ``library.setting(gpu, name, default)``.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyrometer_simulator.nvml.abi import Body, Library
from pyrometer_simulator.nvml.gpu_state import GpuState


@dataclass(frozen=True)
class Feature:
    """The functions that one module here defines; see above."""

    functions: Callable[[Library], dict[str, Body]]
    field: Callable[[Library, GpuState, int, int], tuple[int, int] | None]
    before: Callable[[Library, GpuState, str, tuple[Any, ...]], int | None] | None


def discover() -> list[Feature]:
    """Return the features in the order of their modules' names."""
    names = [module.name for module in pkgutil.iter_modules(__path__, f"{__name__}.")]
    return [
        Feature(
            getattr(module, "functions", lambda _library: {}),
            getattr(module, "field", lambda _library, _gpu, _field, _scope: None),
            getattr(module, "before", None),
        )
        for module in map(importlib.import_module, sorted(names))
    ]
