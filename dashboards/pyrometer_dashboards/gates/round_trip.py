"""The JSON through an independent reading of Grafana's types, the grafana-foundation-sdk: what goes in comes out."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
import warnings
from collections.abc import Iterator
from typing import Any

from pyrometer_dashboards.gates.finding import Finding, Json, Surroundings

_WAY_OUT = "A key that Grafana's types don't know is dropped when somebody saves; remove it."
# Keys that the SDK does not know and Grafana 12.2 writes: Prometheus' own of annotations, and newer ones.
_NEWER = (
    "preload", "showValues", "useValueForTime", "titleFormat", "textFormat", "expr", "interval", "definition", "regex",
    "footer", "frozenColumns",
)  # fmt: skip


def available() -> bool:
    """Whether the SDK is installed: it needs Python 3.11."""
    return sys.version_info >= (3, 11) and importlib.util.find_spec("grafana_foundation_sdk") is not None


def _models() -> tuple[Any, Any]:
    """The SDK's type of a dashboard and its encoder. It advises everyone to write boards of the next schema."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        # Without its plugins the SDK passes options of panels on unread.
        importlib.import_module("grafana_foundation_sdk.cog.plugins").register_default_plugins()
        models = importlib.import_module("grafana_foundation_sdk.models.dashboard")
        return models.Dashboard, importlib.import_module("grafana_foundation_sdk.cog.encoder").JSONEncoder


def check(name: str, board: Json, around: Surroundings) -> Iterator[Finding]:  # noqa: ARG001  all checks look alike
    """What is lost or changed on the way through the SDK."""
    dashboard, encoder = _models()
    try:
        back = json.loads(encoder(sort_keys=True, indent=2).encode(dashboard.from_json(board)))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        yield Finding(name, "", f"the SDK can't read it: {error!r}"[:200], _WAY_OUT)
        return
    for where, problem in _lost(board, back):
        yield Finding(name, "", f"{where}: {problem}"[:200], _WAY_OUT)


def _lost(one: Any, other: Any, where: str = "") -> Iterator[tuple[str, str]]:  # noqa: ANN401  any JSON
    """Keys and values of one that the other doesn't have; what the other has more are defaults."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key, value in one.items():
            if key in _NEWER or value in (None, [], {}):
                continue
            if key not in other:
                yield f"{where}/{key}", "lost"
            else:
                yield from _lost(value, other[key], f"{where}/{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for at, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from _lost(left, right, f"{where}[{at}]")
    elif one != other:
        yield where, f"{json.dumps(one)} became {json.dumps(other)}"
