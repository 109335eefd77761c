"""Colours: only those of the palette, which everyone can tell apart."""

from __future__ import annotations

from collections.abc import Iterator

from pyrometer_dashboards import palette
from pyrometer_dashboards.lint.finding import Finding, Json, LintContext, panels, title

_ALLOWED = frozenset(
    {
        *palette.STATES, palette.NO_DATA, palette.QUIET, palette.IDLE, palette.TEXT, palette.BAND, palette.BESIDE,
        palette.REFERENCE, *palette.PARTS.values(), *palette.LEDGER.values(), *palette.REASONS.values(),
        *palette.NUMBERED, *palette.RUNS,
    }
)  # fmt: skip
_REMEDY = "Take one of pyrometer_dashboards/palette.py: green and red look alike to one man in twelve."


def check(name: str, board: Json, context: LintContext) -> Iterator[Finding]:  # noqa: ARG001  all checks look alike
    """Yield the colours of a board's panels and annotations that are not in the palette."""
    for panel in panels(board):
        for colour in sorted(set(_colours(panel.get("fieldConfig", {}))) - _ALLOWED):
            yield Finding(name, title(panel), f"the colour {colour}", _REMEDY)
    for mark in board.get("annotations", {}).get("list", []):
        if not mark.get("builtIn") and str(mark.get("iconColor")) not in _ALLOWED:
            yield Finding(name, f"mark {mark.get('name')}", f"the colour {mark.get('iconColor')}", _REMEDY)


def _colours(value: object) -> Iterator[str]:
    """Yield every colour in a part of a panel, at any depth."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in ("color", "fixedColor") and isinstance(inner, str):
                yield inner
            else:
                yield from _colours(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _colours(inner)
