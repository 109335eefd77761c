"""The log formats, each in a file of its own that defines ``FORMAT``; to add one, add a file."""

from __future__ import annotations

import importlib
import pkgutil

from pyrometer.follow.log_line import Format


def all_formats() -> dict[str, Format]:
    """Return every format by its name."""
    modules = (importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__))
    formats: list[Format] = [module.FORMAT for module in modules]
    return {format_.name: format_ for format_ in sorted(formats, key=lambda each: each.name)}
