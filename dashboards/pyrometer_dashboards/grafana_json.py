"""Turn boards into the JSON that Grafana 12.2 itself would save.

grafanalib's classes build the document. They write the schema of 2017, whose defaults lose data (100 points a panel,
doubled steps), and leave out what Grafana has added since; ``_normalise`` turns their finished JSON into today's.
"""

# grafanalib has no types, so pyright does not see the fields that its attrs classes take.
# pyright: reportCallIssue=false, reportAttributeAccessIssue=false

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from grafanalib import core

from pyrometer_dashboards import grafana_defaults as defaults
from pyrometer_dashboards import palette
from pyrometer_dashboards.common import ALERTING, RUNBOOK_OF_ROW, RUNBOOKS
from pyrometer_dashboards.grafana_defaults import Json, merged
from pyrometer_dashboards.model import Annotation, Board, Override, Panel, Query, Row, Variable

_HELP = "docs/no-data.md"
# Kinds of panel with room for a sentence.
_LARGE = ("table", "timeseries")
DATASOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}
LOKI: Json = {"type": "loki", "uid": "${loki}"}
WIDTH = 24
# Grafana shows a variable without its label, or not at all.
NO_LABEL, HIDDEN = core.HIDE_LABEL, core.HIDE_VARIABLE
_BUILT_IN: Json = {
    "builtIn": 1,
    "datasource": {"type": "grafana", "uid": "-- Grafana --"},
    "enable": True,
    "hide": True,
    "iconColor": "rgba(0, 211, 255, 1)",
    "name": "Annotations & Alerts",
    "type": "dashboard",
}
# The keys of grafanalib's JSON that Grafana still has.
_DASHBOARD_KEYS = (
    "annotations", "description", "editable", "graphTooltip", "links", "panels", "refresh", "schemaVersion", "tags",
    "templating", "time", "timezone", "title", "uid",
)  # fmt: skip
_ROW_KEYS = ("collapsed", "gridPos", "id", "panels", "title", "type")
_PANEL_KEYS = (
    "datasource", "description", "fieldConfig", "gridPos", "id", "interval", "links", "maxDataPoints", "options",
    "targets", "timeFrom", "title", "transformations", "type",
)  # fmt: skip


def to_json(board: Board) -> str:
    """Return a board as the text that Grafana's provisioning reads; equal boards give equal texts."""
    document: Json = json.loads(json.dumps(_dashboard(board), default=_encode))
    return json.dumps(_normalise(document), indent=2, sort_keys=True) + "\n"


def panel_id(title: str) -> int:
    """Return a panel's number, which stays when other panels come and go; titles are unique on a board."""
    return zlib.crc32(title.encode()) % 99991 + 1


def _encode(value: Any) -> object:  # noqa: ANN401  grafanalib has no types
    """Return the JSON of a grafanalib object; a plain Panel is of the type that its extraJson names."""
    return value.panel_json({}) if type(value) is core.Panel else value.to_json_data()


def _dashboard(board: Board) -> core.Dashboard:
    return core.Dashboard(
        uid=board.uid,
        title=board.title,
        description=board.question,
        tags=["pyrometer", *board.tags],
        editable=False,
        graphTooltip=core.GRAPH_TOOLTIP_MODE_SHARED_CROSSHAIR,
        refresh=board.refresh,
        schemaVersion=defaults.SCHEMA_VERSION,
        time=core.Time(board.time_from, "now"),
        timezone="utc",
        links=[_menu(), *([_help(board)] if board.needs else [])],
        annotations=core.Annotations([_BUILT_IN, *map(_annotation, board.annotations)]),
        templating=core.Templating([*_datasources(board), *map(_variable, _variables(board))]),
        panels=_layout(_explained(board)),
    )


def _variables(board: Board) -> list[Variable]:
    """Return the board's variables, with the address of the runbooks where a panel has one."""
    variables = list(board.variables)
    needed = bool(board.needs) or any(panel.reading.runbook for row in board.rows for panel in row.panels)
    return [*variables, ALERTING] if needed and ALERTING not in variables else variables


def _menu() -> core.DashboardLink:
    """Return the menu of all other boards, which keeps variables and time."""
    return core.DashboardLink(asDropdown=True, includeVars=True, keepTime=True, tags=["pyrometer"], title="Boards")


def _help(board: Board) -> core.DashboardLink:
    """Return the link to the manual's page for a board without data, which the alerting service serves."""
    name = re.sub(r"\W+", "-", board.title.rpartition("/")[2].strip().lower())
    return core.DashboardLink(
        title="No data?", type="link", uri=f"{RUNBOOKS}/docs/no-data.md#{name}", tooltip=board.needs, targetBlank=True
    )


def _explained(board: Board) -> list[Row]:
    """Return the rows, of which the first large panel without data says what the board needs."""
    rows = list(board.rows)
    if any(_HELP in panel.no_value for row in rows for panel in row.panels):
        return rows
    for at, row in enumerate(rows):
        for place, panel in enumerate(row.panels):
            if board.needs and panel.kind in _LARGE and panel.no_value == "no data":
                explained = replace(panel, no_value=f"no data: this board needs {board.needs} ({_HELP})")
                rows[at] = replace(row, panels=[*row.panels[:place], explained, *row.panels[place + 1 :]])
                return rows
    return rows


def _layout(rows: Sequence[Row]) -> list[core.Panel]:
    """Position all panels, rows from top to bottom; the panels of a collapsed row are inside its heading."""
    panels: list[core.Panel] = []
    top = 0
    for row in rows:
        if row.title:
            position = core.GridPos(h=1, w=WIDTH, x=0, y=top)
            heading = core.RowPanel(
                title=row.title, id=panel_id(f"row {row.title}"), collapsed=row.collapsed, gridPos=position
            )
            panels.append(heading)
            top += 1
        placed = _side_by_side(row, top)
        if row.collapsed:
            panels[-1].panels = placed
        else:
            panels.extend(placed)
            top += row.height
    return panels


def _side_by_side(row: Row, top: int) -> list[core.Panel]:
    """Position the panels of a row; a panel lower than the row has the next one below it, in the same column.

    The order is that in which Grafana saves them: from top to bottom, then from left to right.
    """
    panels = []
    left = used = 0
    for panel in row.panels:
        height = panel.height or row.height
        panels.append(_panel(panel, core.GridPos(h=height, w=panel.span, x=left, y=top + used)))
        used += height
        if used >= row.height:
            left, used = left + panel.span, 0
    return sorted(panels, key=lambda panel: (panel.gridPos.y, panel.gridPos.x))


def _panel(panel: Panel, position: core.GridPos) -> core.Panel:
    of_kind = {
        "type": panel.kind,
        "options": merged(defaults.OPTIONS[panel.kind], panel.options),
        "fieldConfig": {"defaults": _field(panel), "overrides": [_override(override) for override in panel.overrides]},
    }
    return core.Panel(
        id=panel_id(panel.title),
        title=panel.title,
        description=panel.reading.text(),
        gridPos=position,
        dataSource=LOKI if panel.source == "loki" else DATASOURCE,
        targets=[_target(query, number, panel.source) for number, query in enumerate(panel.queries)],
        thresholds=_thresholds(panel),
        transformations=list(panel.transformations),
        interval=panel.step or None,
        maxDataPoints=panel.max_points,
        timeFrom=panel.time_from or None,
        links=_runbook(panel),
        extraJson=of_kind,
    )


def _runbook(panel: Panel) -> list[core.DataLink]:
    """Return the link in a panel's head to the runbook of its alert: one click."""
    name = panel.reading.runbook
    url = RUNBOOK_OF_ROW[1].replace("${__data.fields.alert}", name)
    return [core.DataLink(title=f"Runbook: {name}", linkUrl=url, isNewTab=True)] if name else []


def _target(query: Query, number: int, source: str) -> Json:
    target: Json = {"expr": query.expr, "refId": chr(ord("A") + number), "editorMode": "code"}
    if source == "loki":
        return target | {"datasource": LOKI, "queryType": "range"}
    target |= {"datasource": DATASOURCE, "instant": query.instant, "range": not query.instant}
    target |= {"format": "table" if query.table else "time_series"}
    optional = {"legendFormat": query.legend, "interval": query.step}
    return target | {key: value for key, value in optional.items() if value}


def _thresholds(panel: Panel) -> list[Json]:
    if panel.kind in defaults.WITHOUT_FIELDS:
        return []
    return [{"color": colour, "value": value} for value, colour in panel.steps or [(None, palette.QUIET)]]


def _field(panel: Panel) -> Json:
    """Return ``fieldConfig.defaults`` without thresholds. A heatmap has only ``custom``: the rest is in its options."""
    field: Json = {"custom": merged(defaults.CUSTOM[panel.kind], panel.custom)} if panel.kind in defaults.CUSTOM else {}
    if panel.kind in defaults.WITHOUT_FIELDS:
        return field
    field |= {
        "color": panel.colour or defaults.COLOUR[panel.kind],
        "mappings": _mappings(panel),
        "unit": panel.unit,
        "noValue": panel.no_value,
    }
    optional = {"decimals": panel.decimals, "min": panel.limits[0], "max": panel.limits[1]}
    field |= {key: value for key, value in optional.items() if value is not None}
    if panel.links:
        field["links"] = [{"title": title, "url": url} for title, url in panel.links]
    return field


def _mappings(panel: Panel) -> list[Json]:
    """Return the value mappings; by default an absent value is grey with a text, on every kind that paints values."""
    if panel.kind == "stat" and not panel.mappings and panel.no_value != "no data":
        return [defaults.absent_mapping(panel.no_value)]
    if panel.kind in ("stat", "bargauge", "table") and not panel.mappings:
        return [defaults.NO_DATA_MAPPING]
    return list(panel.mappings)


def _override(override: Override) -> Json:
    properties = [{"id": key, "value": value} for key, value in override.properties.items()]
    return {"matcher": {"id": override.by, "options": override.name}, "properties": properties}


def _datasources(board: Board) -> list[Json]:
    """Return the choice of Prometheus, first on every board and without a label, as its value is self-explanatory.

    A board with logs takes the first Loki that Grafana knows.
    """
    logs = any(panel.source == "loki" for row in board.rows for panel in row.panels)
    kinds = [("datasource", "Source", "prometheus", NO_LABEL), *([("loki", "Logs", "loki", HIDDEN)] if logs else [])]
    return [
        _choice(name, label, hide) | {"type": "datasource", "query": query, "refresh": 1, "regex": "", "options": []}
        for name, label, query, hide in kinds
    ]


def _choice(name: str, label: str, hide: int) -> Json:
    """Return what all variables have; what is shown with its label has no ``hide``."""
    choice: Json = (
        {"name": name, "current": {}} | ({"label": label} if label else {}) | ({"hide": hide} if hide else {})
    )
    return choice | ({"skipUrlSync": True} if hide == HIDDEN else {})


def _variable(variable: Variable) -> Json:
    choice = _choice(variable.name, variable.label, HIDDEN if variable.hidden else core.SHOW)
    several = variable.every or bool(variable.all_value)
    if variable.values:
        options = [
            {"selected": not at, "text": text, "value": value} for at, (text, value) in enumerate(variable.values)
        ]
        query = ", ".join(f"{text} : {value}" for text, value in variable.values)
        current = {key: options[0][key] for key in ("text", "value")}
        return choice | {"type": "custom", "query": query, "options": options, "current": current, "includeAll": False}
    # Grafana's editor has a form for each function, which it knows by number.
    form = 3 if variable.query.startswith("query_result(") else 1
    choice |= {
        "type": "query",
        "datasource": DATASOURCE,
        "definition": variable.query,
        "query": {"qryType": form, "query": variable.query, "refId": variable.name},
        "regex": variable.regex,
        "refresh": core.REFRESH_ON_TIME_RANGE_CHANGE,
        "sort": 0 if variable.hidden or variable.ordered else 3 if variable.numeric else 1,
        "options": [],
        "includeAll": several,
    }
    choice |= {"allValue": variable.all_value} if variable.all_value else {}
    return choice | ({"current": {"text": "All", "value": ["$__all"]}, "multi": True} if several else {})


def _annotation(annotation: Annotation) -> Json:
    target: Json = {"refId": "Anno", "expr": annotation.expr, "interval": annotation.step}
    document: Json = {
        "name": annotation.name,
        "datasource": DATASOURCE,
        "enable": annotation.enabled,
        "hide": not annotation.switch,
        "iconColor": annotation.colour,
        "target": target,
        "titleFormat": annotation.title,
        "textFormat": annotation.text,
    }
    return document | ({"useValueForTime": True} if annotation.at_value else {})


def _normalise(dashboard: Json) -> Json:
    """Return grafanalib's JSON as Grafana 12.2 would save it."""
    settings = {"fiscalYearStartMonth": 0, "preload": False, "timepicker": {}, "weekStart": "monday"}
    return _subset(dashboard, _DASHBOARD_KEYS) | settings | {"panels": list(map(_normalise_panel, dashboard["panels"]))}


def _normalise_panel(panel: Json) -> Json:
    if panel["type"] == "row":
        return _subset(panel, _ROW_KEYS) | {"panels": list(map(_normalise_panel, panel["panels"]))}
    kept = {key: value for key, value in _subset(panel, _PANEL_KEYS).items() if value not in (None, [])}
    kept |= {"pluginVersion": defaults.PLUGIN_VERSION, "targets": panel["targets"]}
    if not kept["fieldConfig"]["defaults"]["thresholds"]["steps"]:
        del kept["fieldConfig"]["defaults"]["thresholds"]
    unused = ("datasource", "targets") if panel["type"] in defaults.WITHOUT_QUERIES else ()
    return {key: value for key, value in kept.items() if key not in unused}


def _subset(document: Json, keys: Sequence[str]) -> Json:
    return {key: value for key, value in document.items() if key in keys}
