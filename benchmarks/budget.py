"""Print a figure beside its budget in docs/design.md."""

from __future__ import annotations

import math
from collections.abc import Iterable


def within(what: str, figure: float, most: float, unit: str) -> bool:
    """Print the figure, its budget and whether it is met; whether it is."""
    met = figure <= most
    print(f"  {what:42} {figure:8.3f} {unit}, budget {most:g} {unit}: {'met' if met else 'NOT MET'}")
    return met


def p99(figures: Iterable[float]) -> float:
    """The least of them that 99 % do not exceed."""
    ordered = sorted(figures)
    return ordered[math.ceil(0.99 * len(ordered)) - 1]
