"""A figure beside DESIGN's budget for it."""

from __future__ import annotations


def within(what: str, figure: float, most: float, unit: str) -> bool:
    """Print the figure, its budget and whether it is met; whether it is."""
    met = figure <= most
    print(f"  {what:42} {figure:8.3f} {unit}, budget {most:g} {unit}: {'met' if met else 'NOT MET'}")
    return met
