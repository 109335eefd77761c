"""The log formats: one is a row of a table here, or a file with ``FORMATS`` where it needs code; to add one, add it."""

from __future__ import annotations

import importlib
import pkgutil

from pyrometer.follow.line_format import Row
from pyrometer.follow.log_line import Format


def all_formats() -> dict[str, Format]:
    """Return every format by its name."""
    modules = (importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__))
    rows: list[Row | Format] = [row for module in modules for row in module.FORMATS]
    return {row.name: row.format() if isinstance(row, Row) else row for row in sorted(rows, key=lambda row: row.name)}
