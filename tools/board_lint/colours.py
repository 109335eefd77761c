"""Colours: only those of the palette, which everyone can tell apart, and none without words or a number beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tools.board_lint.finding import Finding, Json, LintContext, panels, targets, title

from pyrometer_dashboards import palette

_ALLOWED = frozenset(
    {
        *palette.STATES, palette.NO_DATA, palette.ABSENT, palette.QUIET, palette.IDLE, palette.TEXT, palette.BAND,
        palette.BESIDE, palette.REFERENCE, *palette.PARTS.values(), *palette.LEDGER.values(), *palette.REASONS.values(),
        *palette.NUMBERED, *palette.RUNS,
    }
)  # fmt: skip
_REMEDY = "Take one of pyrometer_dashboards/palette.py: green and red look alike to one man in twelve."
# Kinds of panel that paint values without writing them.
_PAINTED = ("heatmap", "state-timeline", "status-history", "xychart")
_SPOKEN = "Write what it means beside it: by a legend, a number, or a table of the same metric on the board."
_METRIC = re.compile(r"[a-zA-Z_][\w:]*(?=[{\[])")


def check(name: str, board: Json, context: LintContext) -> Iterator[Finding]:  # noqa: ARG001  all checks look alike
    """Yield the colours of a board's panels and annotations that are not in the palette."""
    for panel in panels(board):
        for colour in sorted(set(_colours(panel.get("fieldConfig", {}))) - _ALLOWED):
            yield Finding(name, title(panel), f"the colour {colour}", _REMEDY)
    for mark in board.get("annotations", {}).get("list", []):
        if not mark.get("builtIn") and str(mark.get("iconColor")) not in _ALLOWED:
            yield Finding(name, f"mark {mark.get('name')}", f"the colour {mark.get('iconColor')}", _REMEDY)
    told = {metric for panel in panels(board) if panel.get("type") == "table" for metric in _metrics(panel)}
    for panel in panels(board):
        yield from (Finding(name, title(panel), problem, _SPOKEN) for problem in _alone(panel, told))


def _alone(panel: Json, told: set[str]) -> Iterator[str]:
    """Yield what a panel says by its colours alone; ``told`` are the metrics of the board's tables."""
    options, kind = panel.get("options", {}), panel.get("type")
    legend = options.get("legend", {})
    if kind in _PAINTED and not (legend.get("show") or legend.get("showLegend") or told & _metrics(panel)):
        yield "it is painted, and no words say what the colours mean"
    if kind == "stat" and options.get("textMode") == "none":
        yield "a colour without its number"
    for result in _results(panel.get("fieldConfig", {})):
        if result.get("color") in palette.STATES and "text" in result and not str(result["text"]).strip():
            yield f"the colour {result['color']} without a word"


def _metrics(panel: Json) -> set[str]:
    return {metric for target in targets(panel) for metric in _METRIC.findall(str(target.get("expr")))}


def _results(value: object) -> Iterator[Json]:
    """Yield what values are mapped to in a part of a panel, at any depth."""
    if isinstance(value, dict):
        if "color" in value and "index" in value:
            yield value
        for inner in value.values():
            yield from _results(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _results(inner)


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
