"""Read what Slack passes on: any part of it may be missing, of another type, or no text that UTF-8 can carry."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def mapping(payload: object, name: str) -> Mapping[str, Any]:
    """Return a part of a payload; empty if it is none."""
    part = payload.get(name) if isinstance(payload, Mapping) else None
    return part if isinstance(part, Mapping) else {}


def text(payload: object, name: str) -> str:
    """Return a text of a payload that UTF-8 can carry (JSON may hold lone surrogates); empty if it is none."""
    value = payload.get(name) if isinstance(payload, Mapping) else None
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def metadata(view: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a modal of ours was given when it was opened; empty for any other."""
    try:
        document = json.loads(text(view, "private_metadata"))
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def written(view: Mapping[str, Any], field: str) -> str:
    """Return the text of a field of a modal; empty where it has none."""
    part: object = view
    for name in ("state", "values", field, field, "value"):
        part = part.get(name) if isinstance(part, Mapping) else None
    return part if isinstance(part, str) else ""
