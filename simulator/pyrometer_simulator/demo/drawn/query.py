"""Asking Prometheus what a panel asks: variables filled in, answers as series."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyrometer_kit.prometheus import HttpPrometheus, Series

_VARIABLE = re.compile(r"\$\{(\w+)(?::\w+)?\}|\$([A-Za-z_]\w*)")
_LABEL_VALUES = re.compile(r"label_values\((.*),\s*(\w+)\)", re.DOTALL)
_QUERY_RESULT = re.compile(r"query_result\((.*)\)", re.DOTALL)
SCRAPE_SECONDS = 5  # of compose/prometheus/prometheus.yaml
_POINTS = 240  # as many as a panel of a third of the page has pixels for


@dataclass(frozen=True)
class Window:
    """The time range of a board, in Unix time, and the values of its variables."""

    start: float
    end: float
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def step(self) -> int:
        """Seconds between two points of a line."""
        return max(SCRAPE_SECONDS, int((self.end - self.start) / _POINTS))

    def filled(self, expr: str) -> str:
        """Return an expression with Grafana's variables and the board's own replaced."""
        seconds = int(self.end - self.start)
        known = {
            "__interval": f"{self.step}s",
            "__rate_interval": f"{max(self.step + SCRAPE_SECONDS, 4 * SCRAPE_SECONDS)}s",
            "__range": f"{seconds}s",
            "__range_s": str(seconds),
            **self.variables,
        }
        return _VARIABLE.sub(lambda found: known.get(found[1] or found[2], found[0]), expr)


class Asker:
    """Prometheus, asked with a window's variables; every query raises PrometheusError."""

    def __init__(self, url: str) -> None:
        self._prometheus = HttpPrometheus(url)

    def instant(self, expr: str, window: Window) -> list[Series]:
        """Return the answer at the end of the window; a range selector's samples are all in it."""
        return self._prometheus.instant(window.filled(expr), window.end)

    def lines(self, expr: str, window: Window) -> list[Series]:
        """Return the answer over the window."""
        return self._prometheus.range(window.filled(expr), window.start, window.end, window.step)

    def variables(self, board: Mapping[str, Any], window: Window, given: Mapping[str, str]) -> Window:
        """Return the window with the board's variables: those given, else all or the first, as Grafana chooses."""
        values = dict(given)
        for variable in board["templating"]["list"]:
            now = Window(window.start, window.end, values)
            if variable["name"] not in values and variable["type"] != "datasource":
                values[variable["name"]] = self._value(variable, now)
        return Window(window.start, window.end, values)

    def _value(self, variable: Mapping[str, Any], window: Window) -> str:
        if variable["type"] == "custom":
            return str(variable["current"]["value"])
        if variable.get("includeAll"):
            return str(variable.get("allValue") or ".+")
        query = variable["query"]["query"]
        if found := _LABEL_VALUES.fullmatch(query):
            values = {
                series.labels.get(found[2], "")
                for series in self.instant(f"group by ({found[2]}) ({found[1]})", window)
            }
        elif found := _QUERY_RESULT.fullmatch(query):
            values = set(_matches(str(variable["regex"]), self.instant(found[1], window)))
        else:
            return ""
        chosen = sorted(value for value in values if value)
        return "|".join(chosen) if variable.get("multi") else next(iter(chosen), "")


def newest(series: Series) -> float:
    """Return the newest value."""
    return series.points[-1][1]


def _matches(regex: str, answer: list[Series]) -> list[str]:
    """Return what a variable's regular expression takes from series, written as Grafana shows them to it."""
    named = re.sub(r"\(\?<(?![=!])", "(?P<", regex.removeprefix("/").removesuffix("/"))  # as JavaScript has it
    pattern = re.compile(named)
    found = []
    for series in answer:
        labels = ",".join(f'{name}="{value}"' for name, value in series.labels.items())
        text = f"{{{labels}}} {newest(series):g} {series.points[-1][0] * 1000:.0f}"
        if match := pattern.search(text):
            found.append(match["value"] if "value" in pattern.groupindex else match[1])
    return found
