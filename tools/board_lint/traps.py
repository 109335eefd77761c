"""Settings that look right and that Grafana 12.2 was found to handle badly, each as a check."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tools.board_lint.finding import Finding, Json, LintContext, custom, panels, targets, title

Problems = Iterator[tuple[str, str]]
KINDS = frozenset(
    [
        "timeseries",
        "stat",
        "gauge",
        "bargauge",
        "table",
        "state-timeline",
        "status-history",
        "heatmap",
        "xychart",
        "histogram",
    ]
)
_PLAIN = ("row", "text", "alertlist", "dashlist", "logs", "news")
_PAINTS = ("stat", "gauge", "bargauge", "table")
_SUMMED = re.compile(r"\s*(max|min|sum|avg|group|count|quantile)\s*(by|without)|\s*\(?\s*\w+:")
_CHOSEN = re.compile(r"\b(?:topk|bottomk|limitk)\b[^(]*\((?:[^()]*\)\s*\()?\s*(\d+)")
# With more points the labels become a solid bar and the browser stalls.
_MOST_HISTORY_POINTS = 100
_MOST_HISTORY_ROWS = 128
# COLUMN.MIN_WIDTH of Grafana's table.
_LEAST_WIDTH = 50


def check(name: str, board: Json, context: LintContext) -> Iterator[Finding]:  # noqa: ARG001  all checks look alike
    """Yield findings in the settings of a board's panels."""
    for panel in panels(board):
        for trap in _TRAPS:
            for problem, remedy in trap(panel):
                yield Finding(name, title(panel), problem, remedy)
    for row in board.get("panels", []):
        if row.get("type") == "row":
            yield from (Finding(name, title(row), *each) for each in _repeat(row))


def _defaults(panel: Json) -> Json:
    found: Json = panel.get("fieldConfig", {}).get("defaults", {})
    return found


def _kind(panel: Json) -> Problems:
    kind = panel.get("type")
    if kind not in KINDS and kind not in _PLAIN:
        yield f"a panel of the kind {kind}", f"Use one of Grafana's own: {', '.join(sorted(KINDS))}."


def _version(panel: Json) -> Problems:
    if panel.get("type") in KINDS and not panel.get("pluginVersion"):
        yield "no pluginVersion: migrations of old forms run over it (a chart of points then only says Err)", "Set it."


def _timeline_colour(panel: Json) -> Problems:
    mode = _defaults(panel).get("color", {}).get("mode")
    if (
        panel.get("type") in ("state-timeline", "status-history")
        and mode == "thresholds"
        and _defaults(panel).get("mappings")
    ):
        yield "colour mode thresholds: the mappings and the events between them disappear", "Use the mode fixed."


def _insert_nulls(panel: Json) -> Problems:
    if custom(panel).get("insertNulls") not in (None, False):
        yield "insertNulls with a number bridges holes", "Leave it false, and set spanNulls in ms."


def _span_nulls(panel: Json) -> Problems:
    if custom(panel).get("spanNulls") is True:
        yield "spanNulls true draws through every hole", "Set it in ms: three to four scrape intervals."


def _hidden_zeros(panel: Json) -> Problems:
    if panel.get("type") == "heatmap" and panel.get("options", {}).get("filterValues", {}).get("le", 1e-9) >= 0:
        yield "cells of 0 are hidden as if there were no data", 'Set filterValues to {"le": -1}.'


def _heatmap_options(panel: Json) -> Problems:
    if panel.get("type") == "heatmap" and panel.get("options", {}).get("calculate") is not False:
        yield "without calculate: false it draws a histogram over time, not a row per series", "Set it to false."


def _overridden(panel: Json, setting: str) -> Iterator[Any]:
    """Yield the values that overrides of single fields give a setting."""
    for override in panel.get("fieldConfig", {}).get("overrides", []):
        yield from (each.get("value") for each in override.get("properties", []) if each["id"] == setting)


def _short_counts(panel: Json) -> Problems:
    if "short" in (_defaults(panel).get("unit"), *_overridden(panel, "unit")):
        yield "the unit short writes 4,079 GPUs as 4.08 K", "Use locale for counts, none for bare numbers."


def _no_unit(panel: Json) -> Problems:
    if panel.get("type") in KINDS - {"heatmap"} and not _defaults(panel).get("unit"):
        yield "no unit", "Set one; none on purpose where the number has none."


def _no_data(panel: Json) -> Problems:
    special = [each for each in _defaults(panel).get("mappings", []) if each.get("type") == "special"]
    matched = any(each["options"].get("match") == "null+nan" for each in special)
    if panel.get("type") in (*_PAINTS, "xychart") and not matched:
        yield "what has no data is painted in the colour of healthy", "Map null+nan to grey and the words no data."
    if panel.get("type") in _PAINTS and str(_defaults(panel).get("noValue", "")) in ("", "0"):
        yield "an empty answer says nothing, or 0", "Set noValue in words."


def _points_colours(panel: Json) -> Problems:
    mappings = _defaults(panel).get("mappings", [])
    if panel.get("type") == "xychart" and mappings:
        if mappings[0].get("options", {}).get("match") != "null+nan":
            yield "null+nan is not the first mapping: to JavaScript nothing is not less than 0", "Put it first."
        if not _covered(each["options"] for each in mappings if each.get("type") == "range"):
            yield "with mappings it ignores thresholds: what no mapping covers is white", "Cover every value."


def _covered(ranges: Iterable[Json]) -> bool:
    """Return whether every number is in one of the ranges; a missing end is infinite."""
    reached = -math.inf
    ends = sorted(
        (each.get("from") or -math.inf, math.inf if each.get("to") is None else each["to"]) for each in ranges
    )
    for start, end in ends:
        if start <= reached:
            reached = max(reached, end)
    return reached == math.inf


def _flags(panel: Json) -> Problems:
    for target in targets(panel):
        if bool(target.get("instant")) == bool(target.get("range")):
            yield "a query is instant and over a range at once, or neither", "Set exactly one."
        if target.get("intervalFactor"):
            yield "intervalFactor still acts: the step doubles, the window of rate() doesn't", "Remove it."


def _few_points(panel: Json) -> Problems:
    most = panel.get("maxDataPoints")
    history = panel.get("type") in ("status-history", "heatmap")
    if most is not None and most <= _MOST_HISTORY_POINTS and not history:
        yield f"maxDataPoints {most}: at a long range most of the time is never looked at", "Leave it out."


def _matrix(panel: Json) -> Problems:
    grouped = any(each.get("id") == "groupingToMatrix" for each in panel.get("transformations", []))
    if grouped and not all(_SUMMED.match(str(target.get("expr", ""))) for target in targets(panel)):
        yield "a matrix of raw series carries all their labels (4.1 MB at 4,088 GPUs)", "Begin with max by (node, gpu)."


def _repeat(panel: Json) -> Problems:
    if panel.get("repeat") in ("node", "gpu"):
        yield f"it is repeated for each {panel['repeat']}: 512 queries at once", "Use a table or a map."


def _history_rows(panel: Json) -> Problems:
    if panel.get("type") == "status-history" and not panel.get("maxDataPoints"):
        yield (
            "a status history without maxDataPoints refuses to draw, or stalls",
            "Set 60 to 100, 128 rows at most.",
        )
    if panel.get("type") == "status-history" and not all(_few_rows(target) for target in targets(panel)):
        yield (
            f"a status history of more than {_MOST_HISTORY_ROWS} rows is a solid bar",
            f"Choose rows with topk({_MOST_HISTORY_ROWS}, ...) or limitk(...).",
        )


def _few_rows(target: Json) -> bool:
    chosen = _CHOSEN.search(str(target.get("expr", "")))
    return chosen is not None and int(chosen[1]) <= _MOST_HISTORY_ROWS


def _straight_bands(panel: Json) -> Problems:
    per_interval = any(
        "_over_time(" in str(target.get("expr")) and "$__interval" in str(target.get("expr"))
        for target in targets(panel)
    )
    fills = any(_overridden(panel, "custom.fillBelowTo"))
    if per_interval and fills and custom(panel).get("lineInterpolation") != "stepBefore":
        yield "a band per interval in straight lines suggests slow declines", "Set lineInterpolation to stepBefore."


def _narrow(panel: Json) -> Problems:
    if panel.get("type") == "table" and any(width < _LEAST_WIDTH for width in _overridden(panel, "custom.width")):
        yield (
            f"a column below {_LEAST_WIDTH} pixels: Grafana draws it wider, and the last one beyond the panel's edge",
            f"Give it {_LEAST_WIDTH}.",
        )


def _data_source(panel: Json) -> Problems:
    for where in (panel, *targets(panel)):
        source = where.get("datasource")
        if panel.get("type") not in _PLAIN and (not isinstance(source, dict) or source.get("uid") != "${datasource}"):
            yield f"the data source is {source!r}", 'Use {"type": "prometheus", "uid": "${datasource}"}.'
            return


def _legacy(panel: Json) -> Problems:
    steps: list[Any] = _defaults(panel).get("thresholds", {}).get("steps", [])
    if any({"index", "op", "line", "yaxis"} & each.keys() for each in steps) or (
        steps and steps[0].get("value") not in (None, 0)
    ):
        yield "thresholds in an old form", "Give each step a colour and a value, the first with null."
    values = [each.get("value") for each in steps[1:]]
    if values != sorted(values, key=lambda value: -math.inf if value is None else value):
        yield "thresholds that don't rise", "Sort them."


_TRAPS: tuple[Callable[[Json], Problems], ...] = (
    _kind, _version, _timeline_colour, _insert_nulls, _span_nulls, _hidden_zeros, _heatmap_options, _short_counts,
    _no_unit, _no_data, _points_colours, _flags, _few_points, _matrix, _repeat, _history_rows, _straight_bands,
    _narrow, _data_source, _legacy,
)  # fmt: skip
