"""The JSON against Grafana's own types: keys that don't exist, values of the wrong type."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from pathlib import Path

import jsonschema

from pyrometer_dashboards.gates.finding import Finding, Json, Surroundings, custom, panels, title

# What Grafana 12.2 writes itself and its published types don't know (seen in its save model, all harmless).
_UNPUBLISHED = {
    "timeseries.custom": ("showValues",),
    "state-timeline.custom": ("insertNulls", "spanNulls"),
    "dashboard": ("preload", "description"),
}
_OF_MARKS = ("expr", "step", "tagKeys", "titleFormat", "textFormat", "useValueForTime", "target")
_WAY_OUT = "Compare with what Grafana saves (docs/dashboards.md, 'Seen in a real Grafana')."


def check(name: str, board: Json, around: Surroundings) -> Iterator[Finding]:  # noqa: ARG001  all checks look alike
    """Findings in the types of a board and of its panels."""
    for problem in _errors("dashboard", _without_panels(board)):
        yield Finding(name, "", problem, _WAY_OUT)
    for panel in panels(board):
        kind = panel.get("type", "")
        for part, value in (("options", panel.get("options", {})), ("custom", custom(panel))):
            for problem in _errors(f"{kind}.{part}", value):
                yield Finding(name, title(panel), f"{part}: {problem}", _WAY_OUT)
        for problem in _errors("panel", _without_kind(panel)):
            yield Finding(name, title(panel), problem, _WAY_OUT)


@functools.cache
def _schemas() -> dict[str, Json]:
    text = (Path(__file__).parent / "grafana.schema.json").read_text(encoding="utf-8")
    found: dict[str, Json] = json.loads(text)["schemas"]
    dashboard = found["dashboard"]
    found["panel"] = {**dashboard["definitions"]["Panel"], "definitions": dashboard["definitions"]}
    return found


def _errors(part: str, value: Json) -> Iterator[str]:
    schema = _schemas().get(part)
    if schema is None:
        return
    known = {key: inner for key, inner in value.items() if key not in _UNPUBLISHED.get(part, ())}
    for error in jsonschema.Draft7Validator(schema).iter_errors(known):
        if not error.message.endswith("is a required property"):
            where = "/".join(map(str, error.absolute_path))
            yield f"{where}: {error.message}"[:200] if where else error.message[:200]


def _without_panels(board: Json) -> Json:
    """The board without what its published type can't know: panels, and Prometheus' own of marks and choices."""
    marks = [_less(mark, *_OF_MARKS) | {"target": {}} for mark in board.get("annotations", {}).get("list", [])]
    choices = [_less(choice, "definition") for choice in board.get("templating", {}).get("list", [])]
    return {**board, "panels": [], "annotations": {"list": marks}, "templating": {"list": choices}}


def _less(value: Json, *keys: str) -> Json:
    return {key: inner for key, inner in value.items() if key not in keys}


def _whole(mapping: Json) -> Json:
    """A range without one end: its type wants null there, which Grafana drops when it saves."""
    if mapping.get("type") != "range":
        return mapping
    return {**mapping, "options": {"from": None, "to": None, **mapping["options"]}}


def _without_kind(panel: Json) -> Json:
    """A panel without what only its own kind knows."""
    configuration = panel.get("fieldConfig", {})
    defaults = {key: value for key, value in configuration.get("defaults", {}).items() if key != "custom"}
    defaults["mappings"] = [_whole(each) for each in defaults.get("mappings", [])]
    return {**panel, "options": {}, "fieldConfig": {**configuration, "defaults": defaults}}
