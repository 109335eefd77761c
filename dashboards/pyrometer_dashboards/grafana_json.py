"""From boards as data to the JSON that Grafana 12.2 itself would save, through grafanalib.

grafanalib is frozen upstream at a schema of 2017 whose defaults lose data (100 points a panel, doubled steps, means
instead of last values). Its classes are the frame; what leaves them is a whitelist laid over Grafana's own defaults.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import attr
from grafanalib import core
from grafanalib._gen import DashboardEncoder

from pyrometer_dashboards import grafana_defaults as defaults
from pyrometer_dashboards import palette
from pyrometer_dashboards.grafana_defaults import Json, merged
from pyrometer_dashboards.model import Annotation, Board, Override, Panel, Query, Row, Variable

DATASOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}
WIDTH = 24
# How Grafana shows a variable: without its label, or not at all.
NO_LABEL, HIDDEN = 1, 2
_BUILT_IN: Json = {
    "builtIn": 1,
    "datasource": {"type": "grafana", "uid": "-- Grafana --"},
    "enable": True,
    "hide": True,
    "iconColor": "rgba(0, 211, 255, 1)",
    "name": "Annotations & Alerts",
    "type": "dashboard",
}


@attr.s
class _Target(core.Target):  # type: ignore[misc]  # grafanalib has no types
    def to_json_data(self) -> Json:
        found = {
            "refId": self.refId,
            "expr": self.expr,
            "datasource": DATASOURCE,
            "editorMode": "code",
            "instant": self.instant,
            "range": not self.instant,
            "format": self.format,
            "legendFormat": self.legendFormat,
            "interval": self.interval,
        }
        return {key: value for key, value in found.items() if value != ""}


@attr.s
class _Panel(core.Panel):  # type: ignore[misc]
    """Any kind of panel: grafanalib's common fields, Grafana's own options."""

    kind: str = attr.ib(default="timeseries")
    options: Json = attr.ib(factory=dict)
    fields: Json = attr.ib(factory=dict)

    def to_json_data(self) -> Json:
        found = {
            "id": self.id,
            "type": self.kind,
            "title": self.title,
            "description": self.description,
            "gridPos": self.gridPos,
            "pluginVersion": defaults.PLUGIN_VERSION,
            "fieldConfig": self.fields,
            "options": self.options,
            "transformations": self.transformations or None,
            "interval": self.interval,
            "maxDataPoints": self.maxDataPoints,
            "timeFrom": self.timeFrom,
        }
        if self.kind not in defaults.WITHOUT_QUERIES:
            found |= {"datasource": DATASOURCE, "targets": self.targets}
        return {key: value for key, value in found.items() if value is not None}


@attr.s
class _RowPanel(core.RowPanel):  # type: ignore[misc]
    def to_json_data(self) -> Json:
        return {
            "id": self.id,
            "type": "row",
            "title": self.title,
            "collapsed": self.collapsed,
            "gridPos": self.gridPos,
            "panels": self.panels,
        }


@attr.s
class _Template(core.Template):  # type: ignore[misc]
    query_type: int = attr.ib(default=1)

    def to_json_data(self) -> Json:
        found: Json = {"name": self.name, "type": self.type, "label": self.label}
        if self.type == "query":
            found |= self._asked()
        elif self.type == "custom":
            first = self.options[0]
            current = {"text": first["text"], "value": first["value"]}
            found |= {"query": self.query, "options": self.options, "current": current, "includeAll": False}
        else:
            found |= {"query": self.query, "refresh": 1, "regex": "", "options": [], "current": {}}
        if self.hide:
            found |= {"hide": self.hide} | ({"skipUrlSync": True} if self.hide == HIDDEN else {})
        return {key: value for key, value in found.items() if value not in (None, "") or key == "regex"}

    def _asked(self) -> Json:
        asked = {"qryType": self.query_type, "query": self.query, "refId": self.name}
        found: Json = {
            "datasource": DATASOURCE,
            "definition": self.query,
            "query": asked,
            "refresh": core.REFRESH_ON_TIME_RANGE_CHANGE,
            "regex": self.regex or "",
            "sort": self.sort,
            "options": [],
            "current": {},
            "includeAll": self.includeAll,
        }
        if self.includeAll:
            found |= {"multi": True, "allValue": self.allValue, "current": {"text": "All", "value": ["$__all"]}}
        return found


@attr.s
class _Dashboard(core.Dashboard):  # type: ignore[misc]
    def to_json_data(self) -> Json:
        return {
            "uid": self.uid,
            "title": self.title,
            "description": self.description,
            "tags": self.tags,
            "schemaVersion": defaults.SCHEMA_VERSION,
            "editable": False,
            "fiscalYearStartMonth": 0,
            "graphTooltip": self.graphTooltip,
            "preload": False,
            "refresh": self.refresh,
            "time": self.time,
            "timepicker": {},
            "timezone": "utc",
            "weekStart": "monday",
            "links": self.links,
            "annotations": self.annotations,
            "templating": self.templating,
            "panels": self.panels,
        }


def to_json(board: Board) -> str:
    """A board as the text that Grafana's provisioning reads, the same each time."""
    return json.dumps(as_grafanalib(board), indent=2, sort_keys=True, cls=DashboardEncoder) + "\n"


def as_grafanalib(board: Board) -> core.Dashboard:
    """A board as grafanalib knows it."""
    return _made(
        _Dashboard,
        uid=board.uid,
        title=board.title,
        description=board.question,
        tags=["pyrometer", *board.tags],
        graphTooltip=core.GRAPH_TOOLTIP_MODE_SHARED_CROSSHAIR,
        refresh=board.refresh,
        time=core.Time(board.time_from, "now"),
        links=[_menu()],
        annotations=core.Annotations([_BUILT_IN, *map(_annotation, board.annotations)]),
        templating=core.Templating([_datasource(), *map(_variable, board.variables)]),
        panels=_placed(board.rows),
    )


def _made(kind: Callable[..., Any], /, **fields: object) -> Any:  # noqa: ANN401  grafanalib has no types
    """One of the classes above; mypy doesn't see the fields that they inherit."""
    return kind(**fields)


def panel_id(title: str) -> int:
    """A number for a panel that stays when panels come and go around it; titles are unique on a board."""
    return zlib.crc32(title.encode()) % 99991 + 1


def _menu() -> Json:
    """The way to all other boards, with the same variables and time."""
    link = core.DashboardLink(asDropdown=True, includeVars=True, keepTime=True, tags=["pyrometer"], title="Boards")
    return {**link.to_json_data(), "icon": "external link"}


def _placed(rows: Sequence[Row]) -> list[core.Panel]:
    """Give every panel its place, rows from top to bottom; rows under a folded heading lie inside it."""
    placed: list[core.Panel] = []
    top = 0
    for row in rows:
        if row.title:
            heading = _made(_RowPanel, title=row.title, id=panel_id(f"row {row.title}"), collapsed=row.collapsed)
            heading.gridPos = core.GridPos(h=1, w=WIDTH, x=0, y=top)
            placed.append(heading)
            top += 1
        panels = _side_by_side(row, top)
        if row.collapsed:
            placed[-1].panels = panels
        else:
            placed.extend(panels)
            top += row.height
    return placed


def _side_by_side(row: Row, top: int) -> list[core.Panel]:
    """The panels of a row; one that is lower than the row takes the next below it (a column of panels).

    In the order in which Grafana saves them: from top to bottom, then from left to right.
    """
    placed = []
    left = used = 0
    for panel in row.panels:
        height = panel.height or row.height
        viz = _viz(panel)
        viz.gridPos = core.GridPos(h=height, w=panel.span, x=left, y=top + used)
        placed.append(viz)
        used += height
        if used >= row.height:
            left, used = left + panel.span, 0
    return sorted(placed, key=lambda viz: (viz.gridPos.y, viz.gridPos.x))


def _viz(panel: Panel) -> core.Panel:
    queries = [_target(query, number) for number, query in enumerate(panel.queries)]
    return _made(
        _Panel,
        id=panel_id(panel.title),
        kind=panel.kind,
        title=panel.title,
        description=panel.reading.text(),
        targets=queries,
        options=merged(defaults.OPTIONS[panel.kind], panel.options),
        fields={"defaults": _field(panel), "overrides": [_override(one) for one in panel.overrides]},
        transformations=list(panel.transformations),
        interval=panel.step or None,
        maxDataPoints=panel.max_points,
        timeFrom=panel.time_from or None,
    )


def _target(query: Query, number: int) -> core.Target:
    return _made(
        _Target,
        refId=chr(ord("A") + number),
        expr=query.expr,
        instant=query.instant,
        format="table" if query.table else "time_series",
        legendFormat=query.legend,
        interval=query.step,
    )


def _field(panel: Panel) -> Json:
    """``fieldConfig.defaults``. A heatmap drops all but ``custom``: its unit and scale stand in its options."""
    if panel.kind in defaults.WITHOUT_QUERIES:
        return {}
    found: Json = {"custom": merged(defaults.CUSTOM[panel.kind], panel.custom)} if panel.kind in defaults.CUSTOM else {}
    if panel.kind == "heatmap":
        return found
    steps = panel.steps or [(None, palette.QUIET)]
    found |= {
        "color": panel.colour or defaults.COLOUR[panel.kind],
        "mappings": _mappings(panel),
        "thresholds": {"mode": "absolute", "steps": [{"color": colour, "value": at} for at, colour in steps]},
        "unit": panel.unit,
        "noValue": panel.no_value,
    }
    optional = {"decimals": panel.decimals, "min": panel.limits[0], "max": panel.limits[1]}
    found |= {key: value for key, value in optional.items() if value is not None}
    if panel.links:
        found["links"] = [{"title": title, "url": url} for title, url in panel.links]
    return found


def _mappings(panel: Panel) -> list[Json]:
    """A value that is not there is grey and says so, on every kind that paints values; unless that means something."""
    if panel.kind == "stat" and not panel.mappings and panel.no_value != "no data":
        return [defaults.nothing(panel.no_value)]
    if panel.kind in ("stat", "bargauge", "table") and not panel.mappings:
        return [defaults.NO_DATA_MAPPING]
    return list(panel.mappings)


def _override(override: Override) -> Json:
    properties = [{"id": key, "value": value} for key, value in override.properties.items()]
    return {"matcher": {"id": override.by, "options": override.name}, "properties": properties}


def _datasource() -> core.Template:
    """The choice of Prometheus, first on every board; its own name says what it is, and a label would cost a line."""
    return _made(_Template, name="datasource", label="Source", type="datasource", query="prometheus", hide=NO_LABEL)


def _variable(variable: Variable) -> core.Template:
    if variable.values:
        pairs = [{"selected": not at, "text": text, "value": value} for at, (text, value) in enumerate(variable.values)]
        query = ", ".join(f"{text} : {value}" for text, value in variable.values)
        return _made(_Template, name=variable.name, label=variable.label, type="custom", query=query, options=pairs)
    return _made(
        _Template,
        name=variable.name,
        label=variable.label,
        query=variable.query,
        regex=variable.regex,
        sort=0 if variable.hidden else 3 if variable.numeric else 1,
        hide=HIDDEN if variable.hidden else 0,
        includeAll=bool(variable.all_value),
        allValue=variable.all_value or None,
        query_type=variable.query_type,
    )


def _annotation(annotation: Annotation) -> Json:
    target: Json = {"refId": "Anno", "expr": annotation.expr, "interval": annotation.step}
    found: dict[str, Any] = {
        "name": annotation.name,
        "datasource": DATASOURCE,
        "enable": annotation.enabled,
        "hide": False,
        "iconColor": annotation.colour,
        "target": target,
        "titleFormat": annotation.title,
        "textFormat": annotation.text,
    }
    return found | ({"useValueForTime": True} if annotation.at_value else {})
