"""Asking Prometheus what a panel asks: variables filled in, answers as series."""

from __future__ import annotations

import json
import re
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_VARIABLE = re.compile(r"\$\{(\w+)(?::\w+)?\}|\$([A-Za-z_]\w*)")
_LABEL_VALUES = re.compile(r"label_values\((.*),\s*(\w+)\)", re.DOTALL)
_QUERY_RESULT = re.compile(r"query_result\((.*)\)", re.DOTALL)
SCRAPE_SECONDS = 5  # of compose/prometheus/prometheus.yaml
_POINTS = 240  # as many as a panel of a third of the page has pixels for
_ASK_SECONDS = 10.0


@dataclass(frozen=True)
class Series:
    """One series of an answer, with its samples (Unix time, value)."""

    labels: dict[str, str]
    samples: list[tuple[float, float]]

    @property
    def last(self) -> float:
        """The newest value."""
        return self.samples[-1][1]


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


@dataclass(frozen=True)
class Asker:
    """Prometheus's API."""

    url: str

    def instant(self, expr: str, window: Window) -> list[Series]:
        """Return the answer at the end of the window; a range selector's samples are all in it."""
        return self._series("query", {"query": window.filled(expr), "time": f"{window.end:.3f}"})

    def lines(self, expr: str, window: Window) -> list[Series]:
        """Return the answer over the window."""
        asked = {"start": f"{window.start:.3f}", "end": f"{window.end:.3f}", "step": str(window.step)}
        return self._series("query_range", {"query": window.filled(expr), **asked})

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

    def _series(self, way: str, parameters: Mapping[str, str]) -> list[Series]:
        """Raise OSError, ValueError."""
        body = urllib.parse.urlencode(parameters).encode()
        with urllib.request.urlopen(f"{self.url}/api/v1/{way}", body, timeout=_ASK_SECONDS) as answer:  # noqa: S310  loopback
            data = json.load(answer)["data"]
        if data["resultType"] == "scalar":
            return [Series({}, [(float(data["result"][0]), float(data["result"][1]))])]
        return [
            Series(each["metric"], [(float(at), float(value)) for at, value in each.get("values") or [each["value"]]])
            for each in data["result"]
        ]


def _matches(regex: str, answer: list[Series]) -> list[str]:
    """Return what a variable's regular expression takes from series, written as Grafana shows them to it."""
    pattern = re.compile(regex.removeprefix("/").removesuffix("/"))
    found = []
    for series in answer:
        labels = ",".join(f'{name}="{value}"' for name, value in series.labels.items())
        text = f"{{{labels}}} {series.last:g} {series.samples[-1][0] * 1000:.0f}"
        if match := pattern.search(text):
            found.append(match[1])
    return found
