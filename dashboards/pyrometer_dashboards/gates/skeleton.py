"""What every other check takes for granted of a board: lists where lists belong, objects where objects do."""

from __future__ import annotations

from collections.abc import Iterator

import jsonschema

from pyrometer_dashboards.gates.finding import Finding, Json

_WAY_OUT = "Nothing else of it was checked. Compare with what Grafana saves."


def _of(**parts: Json) -> Json:
    return {"type": "object", "properties": parts}


def _list(each: Json) -> Json:
    return {"type": "array", "items": each}


_ANY: Json = {"type": "object"}
_WORD: Json = {"type": "string"}
_COUNT: Json = {"type": ["number", "null"]}
_LINKS = _list(_of(url=_WORD))
_OVERRIDE = _of(properties=_list({"type": "object", "properties": {"id": _WORD}, "required": ["id"]}))
_DEFAULTS = _of(
    custom=_ANY,
    color=_ANY,
    links=_LINKS,
    mappings=_list(_of(options=_of(**{"from": _COUNT, "to": _COUNT}))),
    thresholds=_of(steps=_list(_of(value=_COUNT))),
)
_PANEL = _of(
    id=_COUNT,
    type=_WORD,
    gridPos=_ANY,
    maxDataPoints=_COUNT,
    options=_of(filterValues=_of(le=_COUNT)),
    targets=_list(_ANY),
    transformations=_list(_ANY),
    links=_LINKS,
    fieldConfig=_of(defaults=_DEFAULTS, overrides=_list(_OVERRIDE)),
)
_ROW: Json = {"type": "object", "properties": {**_PANEL["properties"], "panels": _list(_PANEL)}}
_NAMED: Json = {"type": "object", "properties": {"name": _WORD}, "required": ["name"]}
_SKELETON = _of(
    uid={"type": ["string", "null"]},
    refresh={"type": ["string", "boolean", "null"]},
    panels=_list(_ROW),
    templating=_of(list=_list(_NAMED)),
    annotations=_of(list=_list(_of(target=_ANY))),
)


def check(name: str, board: Json) -> Iterator[Finding]:
    """Where a board is not built like one; such a board is for no other check."""
    for error in jsonschema.Draft7Validator(_SKELETON).iter_errors(board):
        where = "/".join(map(str, error.absolute_path))
        yield Finding(name, "", f"{where}: {error.message}"[:200], _WAY_OUT)
