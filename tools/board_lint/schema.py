"""Compare the JSON with Grafana's own types: its structure, its published schema, and the grafana-foundation-sdk."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import json
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jsonschema
from tools.board_lint.finding import Finding, Json, LintContext, custom, panels, title

_STRUCTURE_REMEDY = "Nothing else of it was checked. Compare with what Grafana saves."


def _object(**parts: Json) -> Json:
    return {"type": "object", "properties": parts}


def _array(each: Json) -> Json:
    return {"type": "array", "items": each}


_ANY: Json = {"type": "object"}
_WORD: Json = {"type": "string"}
_COUNT: Json = {"type": ["number", "null"]}
_LINKS = _array(_object(url=_WORD))
_OVERRIDE = _object(properties=_array({"type": "object", "properties": {"id": _WORD}, "required": ["id"]}))
_DEFAULTS = _object(
    custom=_ANY,
    color=_ANY,
    links=_LINKS,
    mappings=_array(_object(options=_object(**{"from": _COUNT, "to": _COUNT}))),
    thresholds=_object(steps=_array(_object(value=_COUNT))),
)
_PANEL = _object(
    id=_COUNT,
    type=_WORD,
    gridPos=_ANY,
    maxDataPoints=_COUNT,
    options=_object(filterValues=_object(le=_COUNT)),
    targets=_array(_ANY),
    transformations=_array(_ANY),
    links=_LINKS,
    fieldConfig=_object(defaults=_DEFAULTS, overrides=_array(_OVERRIDE)),
)
_ROW: Json = {"type": "object", "properties": {**_PANEL["properties"], "panels": _array(_PANEL)}}
_NAMED: Json = {"type": "object", "properties": {"name": _WORD}, "required": ["name"]}
_SKELETON = _object(
    uid={"type": ["string", "null"]},
    refresh={"type": ["string", "boolean", "null"]},
    panels=_array(_ROW),
    templating=_object(list=_array(_NAMED)),
    annotations=_object(list=_array(_object(target=_ANY))),
)


def check_structure(name: str, board: Json) -> Iterator[Finding]:
    """Yield values of the wrong JSON type; the other checks rely on these types."""
    for error in jsonschema.Draft7Validator(_SKELETON).iter_errors(board):
        where = "/".join(map(str, error.absolute_path))
        yield Finding(name, "", f"{where}: {error.message}"[:200], _STRUCTURE_REMEDY)


# The files of the types of Grafana 12.2, and of the oldest release that the boards are made for.
PRESENT, OLDEST = "grafana.schema.json", "grafana-11.6.schema.json"
# Keys that Grafana 12.2 writes itself and that its published types lack (found in its save model, all harmless).
UNPUBLISHED = {
    "timeseries.custom": ("showValues",),
    "state-timeline.custom": ("insertNulls", "spanNulls"),
    "dashboard": ("preload", "description"),
}
_OF_MARKS = ("expr", "step", "tagKeys", "titleFormat", "textFormat", "useValueForTime", "target")
_SCHEMA_REMEDY = "Compare with what Grafana saves (docs/dashboards.md, 'Seen in a real Grafana')."


def check_types(name: str, board: Json, context: LintContext) -> Iterator[Finding]:  # noqa: ARG001  all checks look alike
    """Yield violations of the published types in a board and its panels."""
    yield from (Finding(name, *each, _SCHEMA_REMEDY) for each in violations(board, PRESENT, UNPUBLISHED))


def violations(board: Json, release: str, known: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str]]:
    """Yield the panel's title, or nothing for the board itself, and what violates the types of a release.

    Args:
        board: as JSON.
        release: the file of its types.
        known: keys to leave out, by part.
    """

    def errors(part: str, value: Json) -> Iterator[str]:
        return _errors(schemas(release).get(part), _less(value, *known.get(part, ())))

    for problem in errors("dashboard", _without_panels(board)):
        yield "", problem
    for panel in panels(board):
        kind = panel.get("type", "")
        for part, value in (("options", panel.get("options", {})), ("custom", custom(panel))):
            for problem in errors(f"{kind}.{part}", value):
                yield title(panel), f"{part}: {problem}"
        for problem in errors("panel", _without_kind(panel)):
            yield title(panel), problem


@functools.cache
def schemas(release: str) -> dict[str, Json]:
    """Return the published types of a release, by part."""
    text = (Path(__file__).parent / "schemas" / release).read_text(encoding="utf-8")
    found: dict[str, Json] = json.loads(text)["schemas"]
    dashboard = found["dashboard"]
    found["panel"] = {**dashboard["definitions"]["Panel"], "definitions": dashboard["definitions"]}
    return found


def _errors(schema: Json | None, value: Json) -> Iterator[str]:
    if schema is None:
        return
    for error in jsonschema.Draft7Validator(schema).iter_errors(value):
        if not error.message.endswith("is a required property"):
            where = "/".join(map(str, error.absolute_path))
            yield f"{where}: {error.message}"[:200] if where else error.message[:200]


def _without_panels(board: Json) -> Json:
    """Return the board without what its published type lacks: panels, and Prometheus' own keys."""
    marks = [_less(mark, *_OF_MARKS) | {"target": {}} for mark in board.get("annotations", {}).get("list", [])]
    choices = [_less(choice, "definition") for choice in board.get("templating", {}).get("list", [])]
    return {**board, "panels": [], "annotations": {"list": marks}, "templating": {"list": choices}}


def _less(value: Json, *keys: str) -> Json:
    return {key: inner for key, inner in value.items() if key not in keys}


def _whole(mapping: Json) -> Json:
    """Return a range with both ends: the type requires null for an open end, which Grafana drops when it saves."""
    if mapping.get("type") != "range":
        return mapping
    return {**mapping, "options": {"from": None, "to": None, **mapping["options"]}}


def _without_kind(panel: Json) -> Json:
    """Return a panel without the keys that only its own kind defines."""
    configuration = panel.get("fieldConfig", {})
    defaults = {key: value for key, value in configuration.get("defaults", {}).items() if key != "custom"}
    defaults["mappings"] = [_whole(each) for each in defaults.get("mappings", [])]
    return {**panel, "options": {}, "fieldConfig": {**configuration, "defaults": defaults}}


_ROUND_TRIP_REMEDY = "A key that Grafana's types don't know is dropped when somebody saves; remove it."
# Keys that Grafana 12.2 writes and the SDK lacks: Prometheus' own of annotations, and recent ones.
_NEWER = (
    "preload", "showValues", "useValueForTime", "titleFormat", "textFormat", "expr", "interval", "definition", "regex",
    "footer", "frozenColumns",
)  # fmt: skip


def sdk_available() -> bool:
    """Return whether the SDK is installed: it needs Python 3.11."""
    return sys.version_info >= (3, 11) and importlib.util.find_spec("grafana_foundation_sdk") is not None


def _models() -> tuple[Any, Any]:
    """Return the SDK's type of a dashboard and its encoder, without its advice to use the next schema."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        # Without its plugins the SDK passes panel options through unread.
        importlib.import_module("grafana_foundation_sdk.cog.plugins").register_default_plugins()
        models = importlib.import_module("grafana_foundation_sdk.models.dashboard")
        return models.Dashboard, importlib.import_module("grafana_foundation_sdk.cog.encoder").JSONEncoder


def check_round_trip(name: str, board: Json, context: LintContext) -> Iterator[Finding]:  # noqa: ARG001  all checks look alike
    """Yield what is lost or changed on the way through the SDK."""
    dashboard, encoder = _models()
    try:
        back = json.loads(encoder(sort_keys=True, indent=2).encode(dashboard.from_json(board)))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        yield Finding(name, "", f"the SDK can't read it: {error!r}"[:200], _ROUND_TRIP_REMEDY)
        return
    for where, problem in _losses(board, back):
        yield Finding(name, "", f"{where}: {problem}"[:200], _ROUND_TRIP_REMEDY)


def _losses(one: Any, other: Any, where: str = "") -> Iterator[tuple[str, str]]:  # noqa: ANN401  any JSON
    """Yield keys and values that ``other`` lacks; what it has in addition are defaults."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key, value in one.items():
            if key in _NEWER or value in (None, [], {}):
                continue
            if key not in other:
                yield f"{where}/{key}", "lost"
            else:
                yield from _losses(value, other[key], f"{where}/{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for at, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from _losses(left, right, f"{where}[{at}]")
    elif one != other:
        yield where, f"{json.dumps(one)} became {json.dumps(other)}"
