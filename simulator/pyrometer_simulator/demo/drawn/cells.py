"""A panel's values as people read them: unit, words in place of numbers, colour."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_STEPS = (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3))
_SUFFIX = {"celsius": " °C", "watt": " W", "rotmhz": " MHz", "cps": "/s", "si:ticks/s": " ticks/s"}
_SCALED = {"Bps": "B/s", "bps": "b/s", "bytes": "B"}


@dataclass(frozen=True)
class Cell:
    """A value's text, and its colour where the panel colours it."""

    text: str
    colour: str = ""


class Options:
    """The field options of a panel, with what it overrides for a field's name."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._defaults: dict[str, Any] = dict(config.get("defaults", {}))
        self._overrides: list[Mapping[str, Any]] = list(config.get("overrides", []))

    def of(self, name: str) -> dict[str, Any]:
        """Return the options of a field."""
        chosen = dict(self._defaults)
        for override in self._overrides:
            if _applies(override["matcher"], name):
                chosen |= {each["id"].removeprefix("custom."): each.get("value") for each in override["properties"]}
        return chosen

    def cell(self, name: str, value: float | str | None, *, always_coloured: bool = False) -> Cell:
        """Return how a field's value is shown."""
        options = self.of(name)
        mapped = _mapped(options.get("mappings", []), value)
        style = options.get("cellOptions") or options.get("custom", {}).get("cellOptions", {})
        coloured = always_coloured or style.get("type") == "color-background"
        if mapped is not None:
            return Cell(str(mapped.get("text", "")), str(mapped.get("color", "")) if coloured else "")
        if value is None:
            return Cell(str(options.get("noValue", "-")))
        if isinstance(value, str):
            return Cell(value)
        text = in_unit(value, str(options.get("unit") or "none"), options.get("decimals"))
        return Cell(text, _colour(options.get("thresholds", {}), value) if coloured else "")


def in_unit(value: float, unit: str, decimals: int | None = None) -> str:
    """Return a number in one of Grafana's units."""
    if not math.isfinite(value):
        return "no data" if math.isnan(value) else str(value)
    if unit == "percentunit":
        return f"{100 * value:.{1 if decimals is None else decimals}f} %"
    if unit == "s":
        return _duration(value)
    if unit == "dateTimeAsIso":
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(value / 1000))
    if unit in _SCALED:
        size, letter = next(((size, letter) for letter, size in _STEPS if abs(value) >= size), (1.0, ""))
        return f"{value / size:.3g} {letter}{_SCALED[unit]}"
    before = unit.removeprefix("prefix:") if unit.startswith("prefix:") else ""
    after = unit.removeprefix("suffix:") if unit.startswith("suffix:") else _SUFFIX.get(unit, "")
    number = f"{value:,.{decimals}f}" if decimals is not None else f"{round(value, 3):,.10g}"
    return f"{before}{number}{after}"


def _duration(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if abs(seconds) >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.3g} s" if abs(seconds) >= 1 or seconds == 0 else f"{1000 * seconds:.3g} ms"


def _applies(matcher: Mapping[str, Any], name: str) -> bool:
    options = matcher.get("options")
    if matcher["id"] == "byName":
        return bool(options == name)
    if matcher["id"] == "byRegexp":
        return re.search(str(options).removeprefix("/").removesuffix("/"), name) is not None
    return False


def _mapped(mappings: list[Mapping[str, Any]], value: float | str | None) -> Mapping[str, Any] | None:
    nothing = value is None or (isinstance(value, float) and math.isnan(value))
    text = f"{value:g}" if isinstance(value, float) else str(value)
    for mapping in mappings:
        options: Mapping[str, Any] = mapping["options"]
        if mapping["type"] == "special" and nothing and "null" in str(options.get("match")):
            return dict(options["result"])
        if mapping["type"] == "value" and not nothing and text in options:
            return dict(options[text])
        if mapping["type"] == "range" and isinstance(value, float) and _within(options, value):
            return dict(options["result"])
    return None


def _within(options: Mapping[str, Any], value: float) -> bool:
    low, high = options.get("from"), options.get("to")
    return (low is None or value >= low) and (high is None or value <= high)


def _colour(thresholds: Mapping[str, Any], value: float) -> str:
    colour = ""
    for step in thresholds.get("steps", []):
        if step.get("value") is None or value >= step["value"]:
            colour = str(step["color"])
    return colour
