"""The formats, each in a file of its own that defines ``FORMAT``; to add one, add a file."""

from __future__ import annotations

import importlib
import pkgutil

from pyrometer.follow.logged import Format


def all_formats() -> dict[str, Format]:
    """Every format by name."""
    modules = (importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__))
    found: list[Format] = [module.FORMAT for module in modules]
    return {of.name: of for of in sorted(found)}
