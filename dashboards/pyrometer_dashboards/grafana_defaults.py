"""The defaults that Grafana 12.2 writes for a new panel of each kind; our panels start from them.

A board that already has every default is stored unchanged when someone presses Save, and no migration of an older
form runs over it. The values are those of the save model of a running Grafana 12.2.0.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from pyrometer_dashboards import palette

PLUGIN_VERSION = "12.2.0"
SCHEMA_VERSION = 42

Json = dict[str, Any]

_HIDE: Json = {"legend": False, "tooltip": False, "viz": False}
_TOOLTIP: Json = {"hideZeros": False, "mode": "single", "sort": "none"}
_LEGEND: Json = {"calcs": [], "displayMode": "list", "placement": "bottom", "showLegend": True}
_PLAIN_LEGEND: Json = {"displayMode": "list", "placement": "bottom", "showLegend": True}
_REDUCE: Json = {"calcs": ["lastNotNull"], "fields": "", "values": False}
_AXIS: Json = {
    "axisBorderShow": False,
    "axisCenteredZero": False,
    "axisColorMode": "text",
    "axisLabel": "",
    "axisPlacement": "auto",
    "hideFrom": _HIDE,
    "scaleDistribution": {"type": "linear"},
}

# A panel without a value must never look healthy: Grafana gives NaN and absent values the base colour.
NO_DATA_MAPPING: Json = {
    "type": "special",
    "options": {"match": "null+nan", "result": {"text": "no data", "color": palette.ABSENT, "index": 0}},
}


def absent_mapping(text: str) -> Json:
    """Return the mapping for a number whose absence has a meaning, and is not a lack of data."""
    result = {"text": text, "color": palette.QUIET, "index": 0}
    return {"type": "special", "options": {"match": "null+nan", "result": result}}


OPTIONS: dict[str, Json] = {
    "timeseries": {"legend": _LEGEND, "tooltip": {**_TOOLTIP, "mode": "multi", "sort": "desc"}},
    "stat": {
        "colorMode": "background_solid",
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "percentChangeColorMode": "standard",
        "reduceOptions": _REDUCE,
        "showPercentChange": False,
        "textMode": "auto",
        "wideLayout": True,
    },
    "bargauge": {
        "displayMode": "basic",
        "legend": {**_LEGEND, "showLegend": False},
        "maxVizHeight": 300,
        "minVizHeight": 16,
        "minVizWidth": 8,
        "namePlacement": "auto",
        "orientation": "horizontal",
        "reduceOptions": _REDUCE,
        "showUnfilled": True,
        "sizing": "auto",
        "valueMode": "color",
    },
    "table": {"cellHeight": "sm", "showHeader": True},
    "state-timeline": {
        "alignValue": "left",
        "legend": _PLAIN_LEGEND,
        "mergeValues": True,
        "rowHeight": 0.9,
        "showValue": "auto",
        "tooltip": _TOOLTIP,
    },
    "heatmap": {
        "calculate": False,
        "cellGap": 0,
        "cellValues": {},
        "color": {
            "exponent": 0.5,
            "fill": "dark-orange",
            "mode": "scheme",
            "reverse": False,
            "scale": "exponential",
            "scheme": "Cividis",
            "steps": 64,
        },
        "exemplars": {"color": "rgba(255,0,255,0.7)"},
        # Grafana's default of 1e-9 hides cells of 0, as if they had no data.
        "filterValues": {"le": -1},
        "legend": {"show": True},
        "rowsFrame": {"layout": "auto"},
        "tooltip": {"mode": "single", "showColorScale": False, "yHistogram": False},
        "yAxis": {"axisPlacement": "left", "reverse": False},
    },
    "xychart": {
        "legend": {**_LEGEND, "showLegend": False},
        "mapping": "manual",
        "series": [],
        "tooltip": _TOOLTIP,
    },
    "logs": {
        "dedupStrategy": "none",
        "enableInfiniteScrolling": False,
        "enableLogDetails": True,
        "prettifyLogMessage": False,
        "showCommonLabels": False,
        "showLabels": False,
        "showLogContextToggle": False,
        "showTime": True,
        "sortOrder": "Descending",
        "wrapLogMessage": True,
    },
    "text": {
        "code": {"language": "plaintext", "showLineNumbers": False, "showMiniMap": False},
        "content": "",
        "mode": "markdown",
    },
}

CUSTOM: dict[str, Json] = {
    "timeseries": {
        **_AXIS,
        "barAlignment": 0,
        "barWidthFactor": 0.6,
        "drawStyle": "line",
        "fillOpacity": 0,
        "gradientMode": "none",
        "insertNulls": False,
        "lineInterpolation": "linear",
        "lineWidth": 1,
        "pointSize": 5,
        "showPoints": "never",
        "showValues": False,
        # Milliseconds: one lost 15 s scrape is bridged, a gap of a minute stays visible.
        "spanNulls": 60000,
        "stacking": {"group": "A", "mode": "none"},
        "thresholdsStyle": {"mode": "off"},
    },
    "table": {
        "align": "auto",
        "cellOptions": {"type": "auto"},
        "footer": {"reducers": []},
        "inspect": False,
    },
    "state-timeline": {
        "axisPlacement": "auto",
        "fillOpacity": 70,
        "hideFrom": _HIDE,
        "insertNulls": False,
        "lineWidth": 0,
        "spanNulls": False,
    },
    "heatmap": {"hideFrom": _HIDE, "scaleDistribution": {"type": "linear"}},
    "xychart": {
        **_AXIS,
        "axisGridShow": False,
        "axisPlacement": "hidden",
        "fillOpacity": 100,
        "pointShape": "square",
        "pointSize": {"fixed": 8},
        "pointStrokeWidth": 0,
        "show": "points",
    },
}

# State-timeline: in the mode thresholds Grafana 12.2 drops the mappings, and with them the events.
COLOUR: dict[str, Json] = {
    "timeseries": {"mode": "shades", "fixedColor": palette.BAND},
    "stat": {"mode": "thresholds"},
    "bargauge": {"mode": "thresholds"},
    "table": {"mode": "thresholds"},
    "state-timeline": {"mode": "fixed"},
    "xychart": {"mode": "thresholds"},
}

KINDS = tuple(OPTIONS)
WITHOUT_QUERIES = ("text",)
# Kinds without unit, colour and thresholds of their fields; a heatmap has them in its options.
WITHOUT_FIELDS = ("heatmap", "logs", "text")


def merged(base: Json, changes: Json) -> Json:
    """Return a deep copy of ``base`` with ``changes`` applied: dictionaries are merged, other values replaced."""
    result = deepcopy(base)
    for key, value in changes.items():
        inner = result.get(key)
        result[key] = merged(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else deepcopy(value)
    return result
