"""Parts of the simulated driver beyond the basics, one subject per file.

A module here may define ``functions(library)``, which gives C functions by name, and ``field(library, moment, field,
scope)``, which gives ``(kind, value)`` of a field value or None where it isn't the one to ask. Both are found by
themselves. State is what ``SimulatedGpu.set(name=value)`` left, read with ``library.extra(moment, name, default)``.

Of any function and field: ``set(errors={"nvmlDeviceGetPciInfo_v3": 4}, field_errors={"230": 999})`` has them return
these codes for that GPU, whatever it is otherwise.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyrometer_simulator.nvml.library import FakeLibrary
    from pyrometer_simulator.nvml.moment import Moment


@dataclass(frozen=True)
class Feature:
    """What a module here defines; see above."""

    functions: Callable[[FakeLibrary], dict[str, Callable[..., int]]]
    field: Callable[[FakeLibrary, Moment, int, int], tuple[int, int] | None]


def discover() -> list[Feature]:
    """The features, by the names of their modules."""
    names = [module.name for module in pkgutil.iter_modules(__path__, f"{__name__}.")]
    return [
        Feature(
            getattr(module, "functions", lambda _library: {}),
            getattr(module, "field", lambda _library, _moment, _field, _scope: None),
        )
        for module in map(importlib.import_module, sorted(names))
    ]
