"""Keep our boards to what Grafana 11.6 knows: what it doesn't know it leaves out without a word.

Its types are those of @grafana/schema 11.6.0 (dashboards/schema/regenerate.sh), its transformations those of
`DataTransformerID` in @grafana/data 11.6.0. A board of a newer schemaVersion is taken as it is: migrations are
for older ones.
"""

from __future__ import annotations

from collections.abc import Iterator

from tools.board_lint import schema
from tools.board_lint.finding import Finding, Json, LintContext, panels, title

_KINDS = frozenset(
    (
        "bargauge", "gauge", "heatmap", "histogram", "logs", "stat", "state-timeline", "status-history", "table",
        "text", "timeseries", "xychart",
    )
)  # fmt: skip
_TRANSFORMATIONS = frozenset(
    (
        "calculateField", "concatenate", "configFromData", "convertFieldType", "extractFields", "fieldLookup",
        "filterByRefId", "filterByValue", "filterFieldsByName", "formatString", "formatTime", "groupBy",
        "groupToNestedTable", "groupingToMatrix", "histogram", "joinByField", "joinByLabels", "labelsToFields", "limit",
        "merge", "organize", "partitionByValues", "prepareTimeSeries", "reduce", "regression", "renameByRegex",
        "rowsToFields", "seriesToRows", "sortBy", "timeSeriesTable", "transpose",
    )
)  # fmt: skip
# Keys of 12.2 without which a panel says the same: no sums below a table, no column that stays in place, no numbers at
# the points of a line, cells of one line. A column that 12.2 hides with `hideFrom` 11.6 hides with `hidden`.
_WITHOUT = {
    **schema.UNPUBLISHED,
    "table.options": ("frozenColumns",),
    "table.custom": ("footer", "wrapText"),
}
_HIDES, _HID = "custom.hideFrom.viz", "custom.hidden"
_REMEDY = "Grafana 11.6 does not know it: do without, or show what it means beside it (lint/older.py)."


def check(name: str, board: Json, context: LintContext) -> Iterator[Finding]:  # noqa: ARG001  all checks look alike
    """Yield what Grafana 11.6 does not know."""
    for where, problem in schema.violations(board, schema.OLDEST, _WITHOUT):
        yield Finding(name, where, problem, _REMEDY)
    for panel in panels(board):
        for problem in _unknown(panel):
            yield Finding(name, title(panel), problem, _REMEDY)


def _unknown(panel: Json) -> Iterator[str]:
    kind = str(panel.get("type"))
    if kind not in _KINDS:
        yield f"a panel of the kind {kind}"
    for each in panel.get("transformations", []):
        if each.get("id") not in _TRANSFORMATIONS:
            yield f"the transformation {each.get('id')}"
    for override in panel.get("fieldConfig", {}).get("overrides", []):
        names = [str(each["id"]) for each in override["properties"]]
        if kind == "table" and _HIDES in names and _HID not in names:
            yield f"the override {_HIDES} of a table without {_HID}"
        for name in names:
            if name != _HIDES and not _is_known(kind, name):
                yield f"the override {name}"


def _is_known(kind: str, name: str) -> bool:
    """Return whether an override sets a field that the panel's kind has."""
    first, _, rest = name.partition(".")
    types = schema.schemas(schema.OLDEST)
    if first != "custom":
        return first in types["dashboard"]["definitions"]["FieldConfig"]["properties"]
    own = rest.partition(".")[0]
    return own in types.get(f"{kind}.custom", {}).get("properties", {}) or own in _WITHOUT.get(f"{kind}.custom", ())
