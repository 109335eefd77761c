"""Parts of the simulated driver beyond the basics, one subject per file.

A module here may define ``functions(library)``, which gives C functions by name, and ``field(library, moment, field,
scope)``, which gives ``(kind, value)`` of a field value or None where it isn't the one to ask, and ``before(library,
moment, name, arguments)``, which answers any call on a GPU's handle in the function's place, or gives None. All are
found by themselves. State is what ``SimulatedGpu.set(name=value)`` left, read with ``library.extra(moment, name,
default)``.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyrometer_simulator.nvml.library import FakeLibrary
    from pyrometer_simulator.nvml.moment import Moment

FUNCTION_NOT_FOUND = 13  # nvmlReturn_t


@dataclass(frozen=True)
class Feature:
    """What a module here defines; see above."""

    functions: Callable[[FakeLibrary], dict[str, Callable[..., int]]]
    field: Callable[[FakeLibrary, Moment, int, int], tuple[int, int] | None]
    before: Callable[[FakeLibrary, Moment, str, tuple[Any, ...]], int | None] | None


def discover() -> list[Feature]:
    """The features, by the names of their modules."""
    names = [module.name for module in pkgutil.iter_modules(__path__, f"{__name__}.")]
    return [
        Feature(
            getattr(module, "functions", lambda _library: {}),
            getattr(module, "field", lambda _library, _moment, _field, _scope: None),
            getattr(module, "before", None),
        )
        for module in map(importlib.import_module, sorted(names))
    ]


def since(library: FakeLibrary, version: tuple[int, ...], body: Callable[..., int]) -> Callable[..., int]:
    """A function that drivers before ``version`` don't have."""

    def call(*arguments: object) -> int:
        return body(*arguments) if library.driver >= version else FUNCTION_NOT_FOUND

    return call
